"""What pods say of their training: messages among the lines of their logs, which are kept.

A message is one line: a mark, then JSON. The log also holds whatever else is printed in the
pod, and what runs there is not ours: a line that is not a whole and sound message is not a
message, and nothing is raised. `pod_runner` writes these lines.
"""

from __future__ import annotations

import base64
import contextlib
import json
import logging
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TextIO

from ditk_ray.config.terms import FailureKind
from ditk_ray.dijob.pod_runner import MARK, MAX_RESULT_BYTES
from ditk_ray.dijob.tracker import JobTracker, Message, Said
from ditk_ray.execution.executor import Ended, Evaluated
from ditk_ray.kube.objects import Manifest, Objects
from ditk_ray.kube.pod_logs import FollowedPod
from ditk_ray.kube.pods import Death

MAX_LINE = 16 * 1024
"""The longest line in characters. The script keeps below half of that: longer ones are
split by container runtimes."""

_log = logging.getLogger(__name__)

_MAX_PARTS = 1024
_NOT_FINITE = {"nan": float("nan"), "inf": float("inf"), "-inf": float("-inf")}


class PodProtocol:
    """Reads the messages of one pod, from its log's lines in their order. For one thread."""

    def __init__(self, pod: str = "", uid: str = "") -> None:
        self.end: Ended | None = None
        """What it said last."""
        self._pod = pod
        self._uid = uid
        self._newest = 0
        self._parts: list[bytes] = []

    def read(self, line: str) -> Message | None:
        """Return the message in a line, if there is one that is new, and whole by now.

        The line comes without the time that the log may have put before it. What stands before the
        mark is not looked at: it is what was printed without an end of line.
        A result in parts is returned with its last part, whose number it has.
        """
        _, mark, text = line.partition(MARK)
        if not mark or len(text) > MAX_LINE:
            return None
        try:
            given = json.loads(text)
            n = _count(given["n"])
            said = self._said(n, given)
        except (KeyError, TypeError, ValueError, OverflowError, RecursionError):
            return None
        if said is None or n <= self._newest:
            return None
        self._newest = n
        if isinstance(said, Ended):
            self.end = said
        return Message(n, said, self._pod, self._uid)

    def _said(self, n: int, given: Mapping[str, Any]) -> Said | None:
        match given["kind"]:
            case "evaluation":
                return Evaluated(n, _numbers(given["metrics"]))
            case "result":
                return self._joined(given)
            case "end":
                return Ended(returned=_numbers(given["returned"]))
            case "error":
                failure = FailureKind(given["failure"])
                return Ended("failed", error=str(given["message"]), failure=failure)
            case "diverged":
                return Ended("diverged", error=str(given["message"]))
        return None

    def _joined(self, given: Mapping[str, Any]) -> bytes | None:
        number, count = _count(given["part"]), _count(given["parts"])
        if not number <= count <= _MAX_PARTS:
            raise ValueError(f"there is no part {number} of {count}")
        if number == 1:
            self._parts = []
        is_next = number == len(self._parts) + 1
        self._parts.append(base64.b64decode(given["data"], validate=True))
        if not is_next or sum(map(len, self._parts)) > MAX_RESULT_BYTES:
            self._parts = []
        elif number == count:
            return b"".join(self._parts)
        return None


class JobLog:
    """Writes lines of any number of pods into one file. For several threads.

    A file that cannot be written costs its lines and a warning, nothing else.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._file: TextIO | None = None

    def open(self) -> None:
        """Begin the file anew."""
        with self._lock, self._giving_up():
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self._path.open("w", buffering=1, encoding="utf-8", errors="replace")

    def write(self, line: str) -> None:
        with self._lock, self._giving_up():
            if self._file is not None:
                self._file.write(line + "\n")

    def close(self) -> None:
        """Close the file; lines that come later are dropped."""
        with self._lock, self._giving_up():
            file, self._file = self._file, None
            if file is not None:
                file.close()

    @contextlib.contextmanager
    def _giving_up(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            _log.warning("the log %s is not written any more: %s", self._path, error)
            self._file = None


class LoggedJob(JobTracker):
    """A job whose pods' messages are among its events; their other lines are written to `log`."""

    def __init__(self, pods: Objects, name: str, log: Path) -> None:
        super().__init__(pods, name, follow=self._read)
        self._log = JobLog(log)
        self._read_pods: list[PodProtocol] = []

    def begin(self, job: Manifest) -> None:
        self._log.open()
        super().begin(job)

    def _read(self, manifest: Manifest, prefix: str) -> FollowedPod:
        said = PodProtocol(manifest["metadata"]["name"], manifest["metadata"]["uid"])
        self._read_pods.append(said)

        def take(line: str) -> None:
            if MARK not in line:
                self._log.write(prefix + line)
            elif message := said.read(line):
                self.events.add(message)

        has_ended = lambda: said.end is not None  # noqa: E731
        return FollowedPod(self._pods_api, manifest, take, self._on_read, has_ended)

    def _death(self) -> Death | None:
        death = super()._death()
        if death is None or death.kind is FailureKind.BUG:
            for end in [each.end for each in self._read_pods]:
                if end is not None and end.kind != "finished":
                    return Death(end.failure, end.error)
        return death

    def _stop_reading(self) -> None:
        super()._stop_reading()
        self._log.close()


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
