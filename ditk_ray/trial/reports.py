"""What a trial leaves in its folder: the files' names, its reports, and its failures.

`metrics.jsonl` has every report of a trial, a line each, over all of its attempts;
`failures.jsonl` has the attempts that failed, from which its budgets are counted.
"""

from __future__ import annotations

import logging
import platform
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ditk_ray.config.terms import FailureKind
from ditk_ray.trial.outcome import is_disk_full
from ditk_ray.util.files import Row, append_rows, read_rows

CONFIG_FILE = "config.py"
METRICS_FILE = "metrics.jsonl"
RESULT_VALUE_FILE = "result.json"
LOG_FILE = "log.txt"

FAILURES_FILE = "failures.jsonl"

CANCEL_FILE = "cancel"
"""Whoever creates it ends the trial."""

SAVE_FILE = "save"
"""While it exists, every evaluation has a checkpoint."""

CHECKPOINTS_FOLDER = "checkpoints"
"""A folder for each checkpoint, by number."""

META_FILE = "meta.json"
"""In a checkpoint: what it is of, and which files belong to it."""


ENDED = "ditk_ray_ended"
"""The key that says, in a trial's last report, why it ended: `training` (by itself), `time`,
`nan`, `cancelled` or `failed`."""

RESULT = "ditk_ray_result"
"""The key of the value that DI-engine pickled, in a trial's last report."""

ATTEMPT = "ditk_ray_attempt"
"""The key of the number of the attempt that a report is from."""

REPORT = "ditk_ray_report"
"""The key of a report's number in a trial's life, from 1 on, in `metrics.jsonl`. A number that
comes again replaces what was reported from there on: training resumed from a checkpoint."""

SAVED = "ditk_ray_saved"
"""The key that says that a report has a checkpoint of its own."""

FAILURE = "ditk_ray_failure"
"""The key of what a failed trial failed of, in its last report: `kind`, `error`, `attempt`, ..."""

FAILURES = "ditk_ray_failures"
"""The key of all attempts that have failed so far, in every report after the first of them."""


_log = logging.getLogger(__name__)


class MetricsFile:
    """Appends a trial's reports; what a full disk refuses is written when there is room."""

    def __init__(self, trial_folder: Path) -> None:
        self._path = trial_folder / METRICS_FILE
        self._waiting: list[Row] = []

    def append(self, row: Row) -> None:
        """Add a report; raises OSError for anything but a full disk."""
        self._waiting.append(row)
        try:
            append_rows(self._path, *self._waiting)
        except OSError as error:
            if not is_disk_full(error):
                raise
            if len(self._waiting) == 1:
                _log.warning("%s cannot be written: %s", self._path, error)
        else:
            self._waiting = []


def read_reports(file: Path) -> list[Row]:
    """Return the reports that make up the trial as it stands, in their order, of its file."""
    return standing(read_rows(file))


def standing(rows: Iterable[Row]) -> list[Row]:
    """Return the reports that led to where the trial is, of all that were written.

    What was reported behind the checkpoint from which training resumed later is left out:
    it was lost, and done again.
    """
    kept: list[Row] = []
    for row in rows:
        number = row.get(REPORT)
        while number is not None and kept and (kept[-1].get(REPORT) or 0) >= number:
            kept.pop()
        kept.append(row)
    return kept


HOUR = 3600.0


@dataclass(frozen=True)
class Failure:
    """An attempt that failed."""

    kind: str
    error: str
    attempt: int
    log: str | None = None
    time: float = field(default_factory=time.time)
    """When, as `time.time()` counts."""
    node: str = field(default_factory=platform.node)


class FailureLog:
    """The failures of one trial, on disk so that its budgets outlive the worker."""

    def __init__(self, trial_folder: Path) -> None:
        self._path = trial_folder / FAILURES_FILE
        self.failures = read_failures(trial_folder)

    def add(self, failure: Failure) -> None:
        """Note a failure; a disk that is full cannot stop that."""
        self.failures.append(failure)
        try:
            append_rows(self._path, vars(failure))
        except OSError as error:
            _log.warning("%s cannot be written: %s", self._path, error)

    def allows(self, kind: str, retries: Mapping[str, int]) -> bool:
        """Say whether a trial may be tried again that has just failed of this kind.

        Those that were lost are counted in the last hour only: that is not the trial's fault.
        """
        since = time.time() - HOUR if kind == FailureKind.LOST else 0.0
        count = sum(item.kind == kind and item.time >= since for item in self.failures)
        return count <= retries.get(kind, 0)


def read_failures(trial_folder: Path) -> list[Failure]:
    return [Failure(**row) for row in read_rows(trial_folder / FAILURES_FILE)]
