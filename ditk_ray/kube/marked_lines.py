"""What the script in a pod says, read from the lines of the pod's log.

A message is one line: a mark, then JSON. The log also holds whatever else is printed
in the pod, and what runs there is not ours: a line that is not a whole and sound
message is no message, and nothing is raised.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ditk_ray.config.failure_kinds import FailureKind

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
    """The bytes of `result.pkl`, which nobody has looked into yet."""

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
    """The training raised because its policy's outputs are no numbers any more."""

    message: str = ""


@dataclass(frozen=True)
class _ResultPart:
    number: int
    count: int
    data: bytes


class MarkedLines:
    """Reads the messages of one pod, from its log's lines in their order.

    Not for use by several threads.
    """

    def __init__(self) -> None:
        self._parts: list[_ResultPart] = []

    def read(self, line: str) -> PodMessage | None:
        """Return the message in a line, if there is one that is whole by now.

        The line comes without the time that the log may have put before it. What stands before the
        mark is not looked at: it is what was printed without an end of line.
        A result in parts is returned with its last part, whose number it has.
        """
        said = _said(line)
        try:
            return self._message(said) if said else None
        except (KeyError, TypeError, ValueError, OverflowError):
            return None

    def _message(self, said: Mapping[str, Any]) -> PodMessage | None:
        n, kind = _count(said["n"]), said["kind"]
        if kind == "evaluation":
            return PodEvaluation(n, _numbers(said["metrics"]))
        if kind == "result":
            data = self._joined(_part(said))
            return None if data is None else PodResult(n, data)
        if kind == "end":
            return PodEnd(n, _numbers(said["returned"]))
        if kind == "error":
            return PodError(n, str(said["message"]), FailureKind(said["failure"]))
        return PodDiverged(n, str(said["message"])) if kind == "diverged" else None

    def _joined(self, part: _ResultPart) -> bytes | None:
        """Keep a part; return the whole when it is the last and none before it is missing."""
        if part.number == 1:
            self._parts = []
        follows = part.number == len(self._parts) + 1
        size = sum(len(each.data) for each in self._parts) + len(part.data)
        if not follows or size > MAX_RESULT_BYTES:
            self._parts = []
            return None
        self._parts.append(part)
        if part.number < part.count:
            return None
        whole = b"".join(each.data for each in self._parts)
        self._parts = []
        return whole


def _said(line: str) -> Mapping[str, Any] | None:
    _, mark, text = line.partition(MARK)
    if not mark or len(text) > MAX_LINE:
        return None
    try:
        said = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return said if isinstance(said, dict) else None


def _part(said: Mapping[str, Any]) -> _ResultPart:
    number, count = _count(said["part"]), _count(said["parts"])
    if not number <= count <= _MAX_PARTS:
        raise ValueError(f"there is no part {number} of {count}")
    return _ResultPart(number, count, base64.b64decode(said["data"], validate=True))


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
