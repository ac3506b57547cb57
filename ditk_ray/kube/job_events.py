"""What happens to a job, as a numbered list that a consumer reads at its own pace."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass

from ditk_ray.config.failure_kinds import FailureKind
from ditk_ray.kube.marked_lines import PodMessage


@dataclass(frozen=True)
class Phase:
    """The operator moved the job to another phase; `reason` is what it says about that."""

    phase: str
    reason: str = ""


@dataclass(frozen=True)
class Message:
    """A pod of the job said something. (`uid`, `message.n`) is one message's for good.

    A pod that replaces another has its name but not its uid, and counts from 1 again.
    """

    message: PodMessage
    pod: str
    uid: str


@dataclass(frozen=True)
class Waiting:
    """Why the job does not start; told when the reason changes."""

    text: str


@dataclass(frozen=True)
class Gone:
    """Somebody else deleted the job, or it is not there. Nothing follows."""


@dataclass(frozen=True)
class Finished:
    """The job ended, and all of its messages came before this. Nothing follows.

    `kind` and `text` say what it failed of. A job that succeeded has no kind; its text is
    empty unless its log could not be read to the end.
    """

    succeeded: bool
    kind: FailureKind | None = None
    text: str = ""


JobEvent = Phase | Message | Waiting | Gone | Finished


class EventList:
    """The events of one job, from its first on. For any number of threads."""

    def __init__(self) -> None:
        self._events: list[JobEvent] = []
        self._changed = threading.Condition()
        self._is_over = False

    @property
    def is_over(self) -> bool:
        """Whether nothing follows any more."""
        return self._is_over

    def add(self, event: JobEvent) -> None:
        """Append an event and wake who waits. After a last one nothing is taken."""
        with self._changed:
            if self._is_over:
                return
            self._events.append(event)
            self._is_over = isinstance(event, (Gone, Finished))
            self._changed.notify_all()

    def after(self, count: int, timeout: float) -> list[JobEvent]:
        """Return the events after the first `count`, waiting for one up to `timeout` seconds."""
        end = time.monotonic() + timeout
        with self._changed:
            while len(self._events) <= count and not self._is_over:
                left = end - time.monotonic()
                if left <= 0 or not self._changed.wait(left):
                    break
            return self._events[count:]

    def close(self) -> None:
        """Take nothing more, and let nobody wait."""
        with self._changed:
            self._is_over = True
            self._changed.notify_all()
