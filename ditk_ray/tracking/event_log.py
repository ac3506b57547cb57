"""Files that events are appended to, one JSON object to a line.

Whoever appends spends microseconds and cannot fail for long; whoever reads may be
another process, and reads behind. Each event has its `kind` and its `time` in
milliseconds since the epoch.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ditk_ray.config.jsonable import json_text, plain

MAX_WAITING_BYTES = 64 * 1024 * 1024

Event = dict[str, Any]


class EventWriter:
    """Appends events to a file; used by one process at a time.

    An event is with the system when `append` returns, so it outlives the process.
    While the disk is full, events wait in memory.
    """

    def __init__(self, path: Path) -> None:
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

    def sync(self) -> None:
        """Have what was appended outlive the machine, too, as far as the disk allows."""
        with contextlib.suppress(OSError):
            os.fsync(self._file)

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


def events_in(path: Path) -> Iterator[Event]:
    """Yield all events of a file, in their order; none if there is no such file."""
    start = 0
    while path.is_file() and (chunk := read_chunk(path, start)).end > start:
        yield from chunk.events
        start = chunk.end


def _parsed(line: bytes) -> Event | None:
    try:
        event = json.loads(line)
    except ValueError:
        return None
    return event if isinstance(event, Mapping) and "kind" in event else None  # type: ignore[return-value]
