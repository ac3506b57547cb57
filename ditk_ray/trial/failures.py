"""Telling what an attempt of a trial failed of."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from pathlib import Path

from ditk_ray.config.failure_kinds import FailureKind as FailureKind
from ditk_ray.trial.raised_errors import failure_of
from ditk_ray.trial.raised_errors import is_disk_full as is_disk_full
from ditk_ray.trial.raised_errors import is_divergence as is_divergence

_TAKEN_AWAY = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGKILL)
_BROKEN_PIPES = ("EOFError", "BrokenPipeError", "ConnectionResetError", "ConnectionAbortedError")


def kind_of_exception(error: BaseException) -> FailureKind:
    """Say what a training failed of that raised this."""
    return FailureKind(failure_of(error))


@dataclass(frozen=True)
class KernelKills:
    """How many processes the kernel has ended for want of memory, on this node, when it was made.

    Counted are those of the whole node: where the files of control groups cannot be
    seen, nothing tells whose they were.
    """

    count: int

    @classmethod
    def now(cls) -> KernelKills:
        """Return the count as it stands."""
        return cls(max(_counted(path) for path in _COUNTERS))

    def went_up(self) -> bool:
        """Say whether there were more since."""
        return KernelKills.now().count > self.count


_COUNTERS = (
    Path("/proc/vmstat"),
    Path("/sys/fs/cgroup/memory.events"),
    Path("/sys/fs/cgroup/memory/memory.oom_control"),
)


def kind_of_exit(code: int | None, ran_out_of_memory: bool) -> FailureKind:
    """Say what a process failed of that ended without a word.

    `code` is negative for a signal, None if nobody knows. `ran_out_of_memory` says
    whether there is a sign of that.
    """
    if code is None:
        return FailureKind.LOST
    if code == -signal.SIGKILL and ran_out_of_memory:
        return FailureKind.OUT_OF_MEMORY
    return FailureKind.LOST if -code in _TAKEN_AWAY else FailureKind.BUG


def kind_of_message(kind: str, message: str, ran_out_of_memory: bool) -> FailureKind:
    """Say what a training failed of that told so itself.

    One that lost a process below it only sees a broken pipe, whatever ended that.
    """
    if ran_out_of_memory and message.startswith(_BROKEN_PIPES):
        return FailureKind.OUT_OF_MEMORY
    return FailureKind(kind)


def describe_exit(code: int | None) -> str:
    """Say in words how a process ended that should not have."""
    if code is not None and code < 0:
        return f"the trial's process was ended by {signal.Signals(-code).name}"
    if code is None:
        return "the trial's process and its keeper are gone"
    return f"the trial's process left with code {code} before its training ended"


def _counted(path: Path) -> int:
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return 0
    found = [line.split() for line in lines if line.startswith("oom_kill ")]
    return int(found[0][1]) if found else 0
