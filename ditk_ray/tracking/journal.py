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

from collections.abc import Iterator
from pathlib import Path

from ditk_ray.tracking.event_log import Event, EventWriter, events_in

TRACKING_FOLDER = "tracking"
JOURNAL_FILE = "journal.jsonl"


def journal_path(folder: Path) -> Path:
    """Return where a sweep's journal is."""
    return folder / TRACKING_FOLDER / JOURNAL_FILE


class JournalWriter(EventWriter):
    """Appends to a sweep's journal."""

    def __init__(self, folder: Path) -> None:
        super().__init__(journal_path(folder))


def all_events(folder: Path) -> Iterator[Event]:
    """Yield all events of a sweep's journal, in their order."""
    return events_in(journal_path(folder))


def read_events(folder: Path, kind: str) -> list[Event]:
    """Return all events of one kind."""
    return [event for event in all_events(folder) if event["kind"] == kind]
