"""The keys by which a trial's reports say more than metrics."""

ENDED = "ditk_ray_ended"
"""The key that says, in a trial's last report, why it ended."""

RESULT = "ditk_ray_result"
"""The key of the value that DI-engine pickled, in a trial's last report."""

ATTEMPT = "ditk_ray_attempt"
"""The key of the number of the attempt that a report is from."""
