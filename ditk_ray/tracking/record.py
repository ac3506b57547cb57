"""The record of a sweep: the values behind `sweep.json`.

Other tools read that file while the sweep runs, so it is replaced whole and
never half-written.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from numbers import Real
from pathlib import Path
from typing import Any

from ditk_ray.config.jsonable import json_text

VERSION = 1
RECORD_FILE = "sweep.json"


class TrialState(StrEnum):
    """Where a trial stands."""

    PENDING = "pending"
    RUNNING = "running"
    PAUSED = "paused"
    SUCCEEDED = "succeeded"
    STOPPED = "stopped"
    PRUNED = "pruned"
    FAILED = "failed"

    @property
    def is_final(self) -> bool:
        """Whether nothing follows it."""
        return self not in (TrialState.PENDING, TrialState.RUNNING, TrialState.PAUSED)


class SweepStatus(StrEnum):
    """Where a sweep stands."""

    RUNNING = "running"
    FINISHED = "finished"
    FAILED = "failed"
    INTERRUPTED = "interrupted"


@dataclass
class TrialRecord:
    """One trial: `metrics` are its last ones, `best_metrics` those of its best evaluation."""

    id: str
    params: dict[str, Any]
    state: TrialState = TrialState.PENDING
    metrics: dict[str, Any] = field(default_factory=dict)
    best_metrics: dict[str, Any] = field(default_factory=dict)
    dir: str = ""
    error: str | None = None
    result: Any = None
    reports: int = 0


@dataclass
class SweepRecord:
    """A sweep and all of its trials, in the order they were made."""

    name: str
    metric: str
    mode: str
    status: SweepStatus = SweepStatus.RUNNING
    started: str = ""
    ended: str | None = None
    trials: dict[str, TrialRecord] = field(default_factory=dict)

    def add_report(self, trial: TrialRecord, metrics: dict[str, Any]) -> None:
        """Take a trial's newest metrics, and remember its best ones."""
        trial.reports += 1
        trial.metrics = metrics
        if self._rank(metrics) < self._rank(trial.best_metrics):
            trial.best_metrics = metrics

    def best(self) -> TrialRecord | None:
        """Return the trial with the best evaluation; of equals, the one with fewest steps."""
        scored = [trial for trial in self.trials.values() if self.score(trial) is not None]
        return min(scored, key=lambda trial: self._rank(trial.best_metrics), default=None)

    def score(self, trial: TrialRecord) -> float | None:
        """Return the metric at the trial's best evaluation."""
        value = trial.best_metrics.get(self.metric)
        return float(value) if isinstance(value, Real) and math.isfinite(value) else None

    def is_better(self, score: float, other: float) -> bool:
        """Say whether a score beats another one."""
        return score > other if self.mode == "max" else score < other

    def counts(self) -> Counter[TrialState]:
        """Return how many trials are in each state."""
        return Counter(trial.state for trial in self.trials.values())

    def _rank(self, metrics: Mapping[str, Any]) -> tuple[float, float]:
        """Return a key that is smaller for better metrics."""
        value = metrics.get(self.metric)
        if not isinstance(value, Real) or not math.isfinite(value):
            return math.inf, math.inf
        return float(-value if self.mode == "max" else value), metrics.get("env_step") or 0

    def as_dict(self) -> dict[str, Any]:
        """Return what `sweep.json` holds."""
        best = self.best()
        return {
            "version": VERSION,
            "name": self.name,
            "status": self.status,
            "metric": self.metric,
            "mode": self.mode,
            "started": self.started,
            "ended": self.ended,
            "counts": {state: number for state, number in self.counts().items() if number},
            "best": best and {**vars(best), "score": self.score(best)},
            "trials": [vars(trial) for trial in self.trials.values()],
        }


def write_record(record: SweepRecord, folder: Path) -> None:
    """Replace `sweep.json` in one step."""
    write_whole(folder / RECORD_FILE, json_text(record.as_dict(), indent=1))


def write_whole(path: Path, text: str) -> None:
    """Write a file so that a reader sees the old text or the new, never a part."""
    new = path.with_name(f".{path.name}.new")
    with new.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
