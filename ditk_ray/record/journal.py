"""Files that events are appended to, and the journal of a sweep: what is to be recorded in MLflow.

Whoever appends spends microseconds and cannot fail for long; whoever reads may be another
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
import json
import os
import time
from pathlib import Path
from typing import Any

from ditk_ray.util.files import Row, append_lines, read_rows, rows_in
from ditk_ray.util.plain import json_default, json_text

TRACKING_FOLDER = "tracking"
JOURNAL_FILE = "journal.jsonl"
MAX_WAITING_BYTES = 64 * 1024 * 1024

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
        self._waiting = b""

    def append(self, kind: str, **values: Any) -> None:
        event = {"kind": kind, "time": int(time.time() * 1000), **values}
        try:
            text = json.dumps(event, default=json_default)
        except (TypeError, ValueError):  # such as keys that are not text
            text = json_text(event)
        if len(self._waiting) < MAX_WAITING_BYTES:
            self._waiting += text.encode() + b"\n"
        self._write()

    def sync(self) -> None:
        """Have what was appended outlive the machine, too, as far as the disk allows."""
        with contextlib.suppress(OSError), self._path.open("rb") as file:
            os.fsync(file.fileno())

    @property
    def size(self) -> int:
        return self._path.stat().st_size + len(self._waiting)

    def close(self) -> bool:
        """Write what waits; say whether everything is in the file."""
        self._write()
        return not self._waiting

    def _write(self) -> None:
        with contextlib.suppress(OSError):  # the disk is full: the next event tries again
            append_lines(self._path, self._waiting)
            self._waiting = b""


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


def read_events(folder: Path, kind: str = "") -> list[Event]:
    """Return the events of a sweep's journal, all of them or those of one kind."""
    events = [event for event in read_rows(journal_path(folder)) if "kind" in event]
    return [event for event in events if kind in ("", event["kind"])]
