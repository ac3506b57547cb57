"""The ledger of a sweep: which trials were made, and how each of them ended.

`sweep.json` is written about once a second; the ledger has every trial before it starts
and the moment it has ended, so that a sweep whose process was killed goes on with exactly
the trials that it had. One JSON object to a line:

  made      a trial is about to be started: `trial`, `params`, and `drawn`, all that was drawn
            for it, pickled, since a choice may be between things that JSON does not know
  ended     a trial is over for good: `record`, as in `sweep.json`
  reopened  a trial that had ended is run again: `trial`
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cloudpickle

from ditk_ray.tracking.event_log import EventWriter, events_in
from ditk_ray.tracking.record import TrialRecord

STATE_FOLDER = "state"
"""Where a sweep keeps what it is resumed from."""

LEDGER_FILE = "trials.jsonl"


@dataclass
class LedgerEntries:
    """What a ledger says: all trials in the order they were made, and those that have ended.

    `reopened` are those that had, and are run again.
    """

    drawn: dict[str, dict[str, Any]] = field(default_factory=dict)
    ended: dict[str, dict[str, Any]] = field(default_factory=dict)
    reopened: set[str] = field(default_factory=set)

    def reopen(self, trial: str) -> None:
        """Take an end back."""
        self.ended.pop(trial, None)
        self.reopened.add(trial)


class Ledger:
    """The ledger of a sweep that runs; appended to by its own process only."""

    def __init__(self, folder: Path) -> None:
        self._writer = EventWriter(ledger_path(folder))

    def made(self, trial: str, drawn: Mapping[str, Any], params: Mapping[str, Any]) -> None:
        """Note a trial before it starts."""
        pickled = base64.b64encode(cloudpickle.dumps(dict(drawn))).decode()
        self._append("made", trial=trial, params=dict(params), drawn=pickled)

    def ended(self, record: TrialRecord) -> None:
        """Note how a trial ended."""
        self._append("ended", record=vars(record))

    def reopened(self, trial: str) -> None:
        """Note that a trial is not over after all."""
        self._append("reopened", trial=trial)

    def _append(self, kind: str, **values: Any) -> None:
        # A trial that is not in here is made again, by the same name: it must not find
        # the folder of one that the ledger lost with the power.
        self._writer.append(kind, **values)
        self._writer.sync()

    def close(self) -> None:
        """Let go of the file."""
        self._writer.close()


def ledger_path(folder: Path) -> Path:
    """Return where a sweep's ledger is."""
    return folder / STATE_FOLDER / LEDGER_FILE


def read_ledger(folder: Path) -> LedgerEntries:
    """Read a sweep's ledger; an empty one if there is none."""
    entries = LedgerEntries()
    for event in events_in(ledger_path(folder)):
        if event["kind"] == "made":
            entries.drawn[event["trial"]] = cloudpickle.loads(base64.b64decode(event["drawn"]))
        elif event["kind"] == "ended":
            entries.ended[event["record"]["id"]] = event["record"]
            entries.reopened.discard(event["record"]["id"])
        elif event["kind"] == "reopened":
            entries.reopen(event["trial"])
    return entries
