"""Files that events are appended to, and the journal of a sweep: what is to be recorded in MLflow.

The writer spends microseconds and cannot fail for long; the reader may be another
process, and reads behind. One JSON object to a line, with its `kind` and its `time` in
milliseconds since the epoch. The journal's kinds:

  sweep     the sweep starts, or is resumed: `id`, `name`, `metric`, `mode`, `uri`,
            `experiment`, `checkpoints`, `job`
  trial     a trial is known: `trial`, `params`, `tags`
  metrics   a trial's evaluation: `trial`, `step`, `values`
  change    a scheduler changed its parameters: `trial`, `number`, `step`, `params`, and for
            the first change those `before`
  state     a trial's new state: `trial`, `state`, `tags`
  progress  how the sweep stands: `counts`, `best`
  end       the sweep is over: `status`, `best_trial`, and `unfinished`, the trials that are not
"""

from __future__ import annotations

import contextlib
import itertools
import json
import logging
import os
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from ditk_ray.util.files import Row, append_lines, rows_in
from ditk_ray.util.plain import json_default, json_text

TRACKING_FOLDER = "tracking"
JOURNAL_FILE = "journal.jsonl"
MAX_WAITING_BYTES = 64 * 1024 * 1024
BATCH = 100
"""How many of the events that wait are written at once."""
RETRY_SECONDS = 1.0
"""How long after a failure nothing is written: each try takes the event loop's time."""

_log = logging.getLogger(__name__)

Event = Row


class EventWriter:
    """Appends events to a file; used by one process at a time.

    An event is with the system when `append` returns, so it outlives the process.
    While the disk is full, events wait in memory.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.touch()
        self._path = path
        self._file: BinaryIO | None = None
        self._waiting: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._try_at = 0.0
        self._has_dropped = False

    def append(self, kind: str, **values: Any) -> None:
        event = {"kind": kind, "time": int(time.time() * 1000), **values}
        try:
            text = json.dumps(event, default=json_default)
        except (TypeError, ValueError):  # such as keys that are not text
            text = json_text(event)
        line = text.encode() + b"\n"
        if self._waiting_bytes < MAX_WAITING_BYTES:
            self._waiting.append(line)
            self._waiting_bytes += len(line)
        elif not self._has_dropped:
            self._has_dropped = True
            _log.warning("%s cannot be written for too long: events are lost", self._path)
        if time.monotonic() >= self._try_at:
            self._write()

    def sync(self) -> None:
        """Have what was appended outlive the machine, too, as far as the disk allows."""
        with contextlib.suppress(OSError):
            if self._file is not None:
                os.fsync(self._file.fileno())

    @property
    def size(self) -> int:
        return self._path.stat().st_size + self._waiting_bytes

    def close(self) -> bool:
        """Write what waits; say whether everything is in the file."""
        self._write()
        self._forget_file()
        return not self._waiting

    def _write(self) -> None:
        # Kept open: on a network's file system each close is a request to the server.
        try:
            self._file = self._file or self._path.open("a+b", buffering=0)
            while self._waiting:
                batch = tuple(itertools.islice(self._waiting, BATCH))
                append_lines(self._file, b"".join(batch))
                for line in batch:
                    self._waiting_bytes -= len(line)
                    self._waiting.popleft()
        except OSError:  # the disk is full, say
            self._try_at = time.monotonic() + RETRY_SECONDS
            self._forget_file()

    def _forget_file(self) -> None:
        with contextlib.suppress(OSError):
            if self._file is not None:
                self._file.close()
        self._file = None


def read_chunk(path: Path, start: int, max_bytes: int = 1024 * 1024) -> tuple[list[Event], int]:
    """Return events from `start` on, and where the next one begins.

    A line that is not yet whole is left for later; lines that are not events (one was cut off
    by a crash) are passed over.
    """
    with path.open("rb") as file:
        file.seek(start)
        data = file.read(max_bytes)
        whole = data.rfind(b"\n") + 1
        if not whole and len(data) == max_bytes:  # a single line that is longer
            data += file.readline()
            whole = len(data) if data.endswith(b"\n") else 0
    return [event for event in rows_in(data[:whole]) if "kind" in event], start + whole


def journal_path(folder: Path) -> Path:
    return folder / TRACKING_FOLDER / JOURNAL_FILE


def iter_events(folder: Path) -> Iterator[Event]:
    """Yield the events of a sweep's journal, of which only a part is in memory at a time."""
    path, start, end = journal_path(folder), -1, 0
    while path.is_file() and end != start:
        start = end
        events, end = read_chunk(path, start)
        yield from events


def read_events(folder: Path, kind: str) -> list[Event]:
    """Return the events of one kind of a sweep's journal."""
    return [event for event in iter_events(folder) if event["kind"] == kind]
