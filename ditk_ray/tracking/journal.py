"""The journal of a sweep: all that is to be recorded elsewhere, on disk first.

The sweep only ever appends to it, which takes microseconds and cannot fail for
long; whoever delivers it reads behind. One JSON object to a line:

  sweep     the sweep starts, or goes on: `id`, `name`, `metric`, `mode`, `uri`,
            `experiment`, `checkpoints`, `job`
  trial     a trial is known: `trial`, `params`, `tags`
  metrics   a trial's evaluation: `trial`, `step`, `values`
  change    a scheduler changed its parameters: `trial`, `number`, `step`, `params`, and for
            the first change those `before`
  state     a trial's new state: `trial`, `state`, `tags`
  progress  how the sweep stands: `counts`, `best`
  end       the sweep is over: `status`, `best_trial`, and `unfinished`, the trials that are not

Each has its `kind` and its `time` in milliseconds since the epoch.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ditk_ray.config.jsonable import json_text, plain

TRACKING_FOLDER = "tracking"
JOURNAL_FILE = "journal.jsonl"
MAX_WAITING_BYTES = 64 * 1024 * 1024

Event = dict[str, Any]


def journal_path(folder: Path) -> Path:
    """Return where a sweep's journal is."""
    return folder / TRACKING_FOLDER / JOURNAL_FILE


class JournalWriter:
    """Appends events to a sweep's journal; used by one process at a time.

    An event is with the system when `append` returns, so it outlives the process.
    While the disk is full, events wait in memory.
    """

    def __init__(self, folder: Path) -> None:
        path = journal_path(folder)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
        self._waiting = b"" if _ends_whole(self._file) else b"\n"

    def append(self, kind: str, **values: Any) -> None:
        """Add an event with the present time."""
        event = {"kind": kind, "time": int(time.time() * 1000), **values}
        try:
            text = json.dumps(event, default=plain)
        except (TypeError, ValueError):  # such as keys that are no text
            text = json_text(event)
        line = text.encode() + b"\n"
        if len(self._waiting) < MAX_WAITING_BYTES:
            self._waiting += line
        self._write()

    def _write(self) -> None:
        try:
            while self._waiting:
                self._waiting = self._waiting[os.write(self._file, self._waiting) :]
        except OSError:  # the disk is full: the next event tries again
            return

    @property
    def size(self) -> int:
        """How long the journal is by now."""
        return os.fstat(self._file).st_size + len(self._waiting)

    def close(self) -> bool:
        """Let go of the file; say whether everything is in it."""
        self._write()
        os.close(self._file)
        return not self._waiting


def _ends_whole(file: int) -> bool:
    """Say whether the last line was written whole: a machine may have stopped in it."""
    size = os.fstat(file).st_size
    return size == 0 or os.pread(file, 1, size - 1) == b"\n"


@dataclass(frozen=True)
class Chunk:
    """Some consecutive events, and where in the journal the next one begins."""

    events: list[Event]
    end: int


def read_chunk(path: Path, start: int, max_bytes: int = 1024 * 1024) -> Chunk:
    """Read events from `start` on; a line that is not yet whole is left for later.

    Lines that are no events (one was cut off by a crash) are passed over.
    """
    with path.open("rb") as file:
        file.seek(start)
        data = file.read(max_bytes)
        whole = data.rfind(b"\n") + 1
        if not whole and len(data) == max_bytes:  # a single line that is longer
            data += file.readline()
            whole = len(data) if data.endswith(b"\n") else 0
    lines = data[:whole].splitlines()
    return Chunk([event for line in lines if (event := _parsed(line))], start + whole)


def all_events(folder: Path) -> Iterator[Event]:
    """Yield all events of a sweep's journal, in their order."""
    path, start = journal_path(folder), 0
    while path.is_file() and (chunk := read_chunk(path, start)).end > start:
        yield from chunk.events
        start = chunk.end


def read_events(folder: Path, kind: str) -> list[Event]:
    """Return all events of one kind."""
    return [event for event in all_events(folder) if event["kind"] == kind]


def _parsed(line: bytes) -> Event | None:
    try:
        event = json.loads(line)
    except ValueError:
        return None
    return event if isinstance(event, Mapping) and "kind" in event else None  # type: ignore[return-value]
