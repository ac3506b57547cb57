"""What `ditk-ray submit` prints while jobs run, and at the end."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import IO, TYPE_CHECKING, Any

from ditk_ray.cli.object_output import print_table, print_value, tell

if TYPE_CHECKING:
    from ditk_ray.cluster.jobs.cluster_file import KnownCluster
    from ditk_ray.cluster.jobs.dispatch import JobOutcome
    from ditk_ray.cluster.jobs.job_request import JobRequest


class JobPrinter:
    """Prints logs as they come: of one job as they are, of several line by line with the job.

    With a result that a program reads from stdout, the logs go to stderr.
    """

    def __init__(self, form: str, has_several: bool) -> None:
        self._out: IO[str] = sys.stdout if form == "table" else sys.stderr
        self._has_several = has_several
        self._begun: dict[str, str] = {}

    def sent(self, job: JobRequest, cluster: KnownCluster) -> None:
        """Tell that a cluster has taken a job."""
        tell(f"{job.id} runs on {cluster}: {job}")

    def printed(self, job: JobRequest, cluster: KnownCluster, text: str) -> None:
        """Print a part of a log, which need not end with a line."""
        if not self._has_several:
            self._write(text)
            return
        *lines, rest = (self._begun.pop(job.id, "") + text).split("\n")
        if rest:
            self._begun[job.id] = rest
        self._write("".join(f"[{job.id} {cluster.name}] {line}\n" for line in lines))

    def ended(self, outcome: JobOutcome) -> None:
        """Print what stood in a last line, and tell how the job ended."""
        rest = self._begun.pop(outcome.job.id, "")
        if rest and outcome.cluster:
            self._write(f"[{outcome.job.id} {outcome.cluster.name}] {rest}\n")
        tell(describe_end(outcome))

    def gave_up(self, cluster: KnownCluster, why: str) -> None:
        """Tell that a cluster gets no more jobs."""
        tell(f"{cluster.name} gets no more jobs: {why}")

    def _write(self, text: str) -> None:
        self._out.write(text)
        self._out.flush()


def describe_end(outcome: JobOutcome) -> str:
    """Say how a job ended, and what to do about it."""
    from ditk_ray.cluster.jobs.job_state import JobStatus
    from ditk_ray.config.quantities import show_seconds

    state, where = outcome.state, f" on {outcome.cluster.name}" if outcome.cluster else ""
    took = f" after {show_seconds(state.seconds)}" if state.seconds else ""
    text = f"{outcome.job.id} {state.status.lower()}{where}{took}"
    if state.status is JobStatus.LOST and outcome.cluster:
        return (
            f"{text}: {state.message}\n"
            f"    when the cluster is back: ditk-ray submit --follow {outcome.job.id} "
            f"--address {outcome.cluster.address}; if it is gone, submit the job again"
        )
    if state.status is JobStatus.SUCCEEDED or not state.message:
        return text
    # Ray repeats the end of the log there, which has been seen.
    reason = state.message.partition(", last available logs")[0].strip()
    return f"{text}: {reason}"


def print_outcomes(outcomes: Sequence[JobOutcome], form: str) -> None:
    """Print the result: a table of several jobs, or JSON of all."""
    if form != "table":
        print_value([_as_dict(outcome) for outcome in outcomes], form)
    elif len(outcomes) > 1:
        headings = ["JOB", "CLUSTER", "STATUS", "EXIT CODE", "COMMAND"]
        print_table([headings, *(_row(outcome) for outcome in outcomes)])


def _row(outcome: JobOutcome) -> list[str]:
    cluster = outcome.cluster.name if outcome.cluster else "-"
    code = outcome.state.exit_code
    shown = "-" if code is None else str(code)
    return [outcome.job.id, cluster, outcome.state.status, shown, str(outcome.job)]


def _as_dict(outcome: JobOutcome) -> dict[str, Any]:
    cluster, state = outcome.cluster, outcome.state
    return {
        "id": outcome.job.id,
        "command": list(outcome.job.command),
        "cluster": cluster.name if cluster else None,
        "address": cluster.address if cluster else None,
        "status": str(state.status),
        "exit_code": state.exit_code,
        "seconds": state.seconds,
        "message": state.message or None,
    }
