"""How a submitted job stands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class JobStatus(StrEnum):
    """Ray's words for it, and two of our own: LOST with its cluster, UNSENT to any."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    STOPPED = "STOPPED"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    LOST = "LOST"
    UNSENT = "UNSENT"

    @property
    def is_final(self) -> bool:
        """Whether nothing comes after it."""
        return self not in (JobStatus.PENDING, JobStatus.RUNNING)


@dataclass(frozen=True)
class JobState:
    """What a cluster says of a job; times are seconds since 1970."""

    id: str
    status: JobStatus
    entrypoint: str = ""
    message: str = ""
    exit_code: int | None = None
    """The program's own, where Ray tells it."""
    started: float | None = None
    ended: float | None = None
    metadata: Mapping[str, str] | None = None

    @property
    def code(self) -> int:
        """The exit code to leave with for this job: 0 only if it succeeded."""
        if self.status is JobStatus.SUCCEEDED:
            return 0
        # A signal's is negative, which no process can leave with.
        return self.exit_code if self.exit_code and 0 < self.exit_code < 256 else 1

    @property
    def seconds(self) -> float | None:
        """How long it took, if it is over."""
        return self.ended - self.started if self.started and self.ended else None


def job_state(told: Mapping[str, Any]) -> JobState:
    """Read what the job API tells of a job; one that was not submitted has no id."""
    return JobState(
        id=told.get("submission_id") or "",
        status=JobStatus(told["status"]),
        entrypoint=told.get("entrypoint") or "",
        message=told.get("message") or "",
        exit_code=told.get("driver_exit_code"),
        started=_seconds(told.get("start_time")),
        ended=_seconds(told.get("end_time")),
        metadata=told.get("metadata") or {},
    )


def _seconds(milliseconds: float | None) -> float | None:
    return milliseconds / 1000 if milliseconds else None
