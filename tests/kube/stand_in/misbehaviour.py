"""What a cluster can be told to do wrong, and to which jobs."""

from __future__ import annotations

from dataclasses import dataclass, field
from fnmatch import fnmatchcase


@dataclass
class Misbehaviour:
    """Faults that pods run into by themselves, by patterns of job names.

    Written by a test and read by the threads of pods, which look again while they wait.
    """

    unschedulable: dict[str, str] = field(default_factory=dict)
    unpullable: dict[str, str] = field(default_factory=dict)
    rejected: dict[str, str] = field(default_factory=dict)
    """The reasons why a node refuses pods that were scheduled to it."""
    slowness: float = 0.0
    """Seconds for each step of a pod's start."""
    remakes_last_pod: bool = True

    def clear(self) -> None:
        for faults in (self.unschedulable, self.unpullable, self.rejected):
            faults.clear()
        self.slowness = 0.0
        self.remakes_last_pod = True


def fault(faults: dict[str, str], job: str) -> str | None:
    """Return what a job suffers, if anything."""
    return next((text for pattern, text in list(faults.items()) if fnmatchcase(job, pattern)), None)
