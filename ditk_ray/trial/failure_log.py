"""`failures.jsonl`: the attempts of a trial that failed, and how many more it may have."""

from __future__ import annotations

import logging
import platform
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ditk_ray.trial.failures import FailureKind
from ditk_ray.trial.files import FAILURES_FILE
from ditk_ray.trial.json_lines import append_rows, read_rows

HOUR = 3600.0

_log = logging.getLogger(__name__)


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

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        return asdict(self)


class FailureLog:
    """The failures of one trial, on disk so that its budgets outlive the worker."""

    def __init__(self, trial_folder: Path) -> None:
        self._path = trial_folder / FAILURES_FILE
        self.failures = read_failures(trial_folder)

    def add(self, failure: Failure) -> None:
        """Note a failure; a disk that is full cannot stop that."""
        self.failures.append(failure)
        try:
            append_rows(self._path, failure.as_dict())
        except OSError as error:
            _log.warning("%s cannot be written: %s", self._path, error)

    def allows(self, kind: str, retries: Mapping[str, int]) -> bool:
        """Say whether a trial may be tried again that has just failed of this kind.

        Those that were lost are counted in the last hour only: that is nobody's fault.
        """
        since = time.time() - HOUR if kind == FailureKind.LOST else 0.0
        count = sum(item.kind == kind and item.time >= since for item in self.failures)
        return count <= retries.get(kind, 0)


def read_failures(trial_folder: Path) -> list[Failure]:
    """Return the failures of a trial's attempts, oldest first."""
    return [Failure(**row) for row in read_rows(trial_folder / FAILURES_FILE)]
