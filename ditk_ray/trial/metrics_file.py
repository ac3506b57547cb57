"""`metrics.jsonl`: every report of a trial, a line each, over all of its attempts."""

from __future__ import annotations

import logging
from pathlib import Path

from ditk_ray.trial.failures import is_disk_full
from ditk_ray.trial.files import METRICS_FILE
from ditk_ray.trial.json_lines import Row, append_rows, read_rows
from ditk_ray.trial.report_keys import REPORT

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
    """Return the reports that make up the trial as it stands, in their order, of its file.

    What an attempt reported behind the checkpoint from which the next one went on is
    left out, and so is a line that was cut short.
    """
    rows: list[Row] = []
    for row in read_rows(file):
        number = row.get(REPORT)
        while number is not None and rows and (rows[-1].get(REPORT) or 0) >= number:
            rows.pop()
        rows.append(row)
    return rows
