"""What happens to a job, as a numbered list of events; among them what its pods say.

A pod's message is one line of its log: a mark, then JSON. The log also holds whatever else
is printed in the pod, and what runs there is not ours: a line that is not a whole and sound
message is not a message, and nothing is raised. `pod_runner` writes these lines.
"""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ditk_ray.config.terms import FailureKind

MARK = "::ditk-ray:: "
MAX_LINE = 16 * 1024
"""The longest line in characters. The script keeps below half of that: longer ones are
split by container runtimes."""

MAX_RESULT_BYTES = 1024 * 1024
_MAX_PARTS = 1024
_NOT_FINITE = {"nan": float("nan"), "inf": float("inf"), "-inf": float("-inf")}


@dataclass(frozen=True)
class PodMessage:
    """Something that a pod said. `n` counts the messages of its process, from 1."""

    n: int


@dataclass(frozen=True)
class PodEvaluation(PodMessage):
    """The policy was evaluated."""

    metrics: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class PodResult(PodMessage):
    """The bytes of `result.pkl`, not checked yet."""

    data: bytes = b""


@dataclass(frozen=True)
class PodEnd(PodMessage):
    """The training ended well; `returned` are the numbers that it returned."""

    returned: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class PodError(PodMessage):
    """The training raised."""

    message: str = ""
    failure: FailureKind = FailureKind.BUG


@dataclass(frozen=True)
class PodDiverged(PodMessage):
    """The training raised because its policy's outputs are not numbers any more."""

    message: str = ""


@dataclass(frozen=True)
class Phase:
    """The operator moved the job to another phase; `reason` is what it says about that."""

    phase: str
    reason: str = ""


@dataclass(frozen=True)
class Message:
    """A pod of the job said something. (`uid`, `message.n`) identifies one message permanently.

    A pod that replaces another has its name but not its uid, and counts from 1 again.
    """

    message: PodMessage
    pod: str
    uid: str


@dataclass(frozen=True)
class Waiting:
    """Why the job does not start; reported when the reason changes."""

    text: str


@dataclass(frozen=True)
class Gone:
    """The job was deleted externally, or does not exist. Nothing follows."""


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
        self.is_over = False
        """Whether nothing follows any more."""
        self._events: list[JobEvent] = []
        self._changed = threading.Condition()

    def add(self, event: JobEvent) -> None:
        """Append an event and wake who waits. After a last one nothing is taken."""
        with self._changed:
            if not self.is_over:
                self._events.append(event)
                self.is_over = isinstance(event, (Gone, Finished))
                self._changed.notify_all()

    def after(self, count: int, timeout: float) -> list[JobEvent]:
        """Return the events after the first `count`, waiting for one up to `timeout` seconds."""
        with self._changed:
            self._changed.wait_for(lambda: len(self._events) > count or self.is_over, timeout)
            return self._events[count:]

    def close(self) -> None:
        """Take nothing more, and release all who wait."""
        with self._changed:
            self.is_over = True
            self._changed.notify_all()


class MarkedLines:
    """Reads the messages of one pod, from its log's lines in their order. For one thread."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def read(self, line: str) -> PodMessage | None:
        """Return the message in a line, if there is one that is whole by now.

        The line comes without the time that the log may have put before it. What stands before the
        mark is not looked at: it is what was printed without an end of line.
        A result in parts is returned with its last part, whose number it has.
        """
        _, mark, text = line.partition(MARK)
        if not mark or len(text) > MAX_LINE:
            return None
        try:
            said = json.loads(text)
            return self._message(said) if isinstance(said, dict) else None
        except (KeyError, TypeError, ValueError, OverflowError, RecursionError):
            return None

    def _message(self, said: Mapping[str, Any]) -> PodMessage | None:
        n = _count(said["n"])
        match said["kind"]:
            case "evaluation":
                return PodEvaluation(n, _numbers(said["metrics"]))
            case "result":
                data = self._joined(said)
                return None if data is None else PodResult(n, data)
            case "end":
                return PodEnd(n, _numbers(said["returned"]))
            case "error":
                return PodError(n, str(said["message"]), FailureKind(said["failure"]))
            case "diverged":
                return PodDiverged(n, str(said["message"]))
        return None

    def _joined(self, said: Mapping[str, Any]) -> bytes | None:
        """Keep a part; return the whole when it is the last and none before it is missing."""
        number, count = _count(said["part"]), _count(said["parts"])
        if not number <= count <= _MAX_PARTS:
            raise ValueError(f"there is no part {number} of {count}")
        if number == 1:
            self._parts = []
        is_next = number == len(self._parts) + 1
        self._parts.append(base64.b64decode(said["data"], validate=True))
        if not is_next or sum(map(len, self._parts)) > MAX_RESULT_BYTES:
            self._parts = []
        elif number == count:
            return b"".join(self._parts)
        return None


def _count(value: Any) -> int:
    if type(value) is not int or value < 1:
        raise ValueError(f"{value!r} does not count anything")
    return value


def _numbers(given: Any) -> dict[str, float]:
    """Return the entries that are numbers; those that are not finite come by their names."""
    found: dict[str, float] = {}
    for name, value in dict(given).items():
        number = _NOT_FINITE.get(value) if isinstance(value, str) else value
        if isinstance(number, (int, float)) and not isinstance(number, bool):
            found[name] = number
    return found
