"""The keys by which a trial's reports say more than metrics."""

ENDED = "ditk_ray_ended"
"""The key that says, in a trial's last report, why it ended: `training` (by itself), `time`,
`nan`, `cancelled` or `failed`."""

RESULT = "ditk_ray_result"
"""The key of the value that DI-engine pickled, in a trial's last report."""

ATTEMPT = "ditk_ray_attempt"
"""The key of the number of the attempt that a report is from."""

REPORT = "ditk_ray_report"
"""The key of a report's number in a trial's life, from 1 on, in `metrics.jsonl`. A number that
comes again replaces what was reported from there on: training went on from a checkpoint."""

SAVED = "ditk_ray_saved"
"""The key that says that a report has a checkpoint of its own."""

FAILURE = "ditk_ray_failure"
"""The key of what a failed trial failed of, in its last report: `kind`, `error`, `attempt`, ..."""

FAILURES = "ditk_ray_failures"
"""The key of all attempts that have failed so far, in every report after the first of them."""
