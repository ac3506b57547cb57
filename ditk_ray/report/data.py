"""What a report is made of, gathered from a sweep's folder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ditk_ray.report.axes import Axis, build_axes
from ditk_ray.report.curves import Curve, read_curve
from ditk_ray.report.values import is_number, seconds_between
from ditk_ray.tracking.record import (
    RECORD_FILE,
    SweepRecord,
    SweepStatus,
    TrialRecord,
    TrialState,
    read_record,
)


@dataclass(frozen=True)
class TrialData:
    """A trial with what its own files say; `index` is its place in the record."""

    index: int
    record: TrialRecord
    score: float | None
    curve: Curve
    seconds: float
    objectives: tuple[float, ...] = ()
    """The values of all objectives at its best evaluation; none if one is missing."""
    is_pareto: bool = False
    """Whether no other trial beats it in all of several objectives."""

    @property
    def id(self) -> str:
        """Its name."""
        return self.record.id

    @property
    def best_step(self) -> float | None:
        """The environment steps of its best evaluation."""
        step = self.record.best_metrics.get("env_step")
        return step if is_number(step) else None

    @property
    def last_step(self) -> float | None:
        """The environment steps that it came to."""
        step = self.record.metrics.get("env_step")
        return step if is_number(step) else None


@dataclass(frozen=True)
class SweepData:
    """A sweep as it was at the moment `seen`."""

    record: SweepRecord
    folder: Path
    seen: datetime
    trials: Sequence[TrialData]
    axes: Sequence[Axis]

    @property
    def job(self) -> dict[str, Any]:
        """What was asked for; empty in a record that does not say."""
        return self.record.job

    @property
    def is_running(self) -> bool:
        """Whether more may follow."""
        return self.record.status is SweepStatus.RUNNING

    @property
    def seconds(self) -> float | None:
        """The wall-clock time of the sweep so far."""
        return seconds_between(self.record.started, self.record.ended or self.seen.isoformat())

    @property
    def best(self) -> TrialData | None:
        """The best trial."""
        best = self.record.best()
        return next((trial for trial in self.trials if trial.record is best), None)

    @property
    def pareto(self) -> list[TrialData]:
        """The trials that none beats in all objectives, if there are several; the best first."""
        return [trial for trial in self.ranked if trial.is_pareto]

    @property
    def scored(self) -> list[TrialData]:
        """The trials with a score, in the record's order."""
        return [trial for trial in self.trials if trial.score is not None]

    @property
    def finished(self) -> list[TrialData]:
        """The trials that ended with a score, also those that were ended early."""
        return [
            trial
            for trial in self.scored
            if trial.record.state.is_final and trial.record.state is not TrialState.FAILED
        ]

    @property
    def ranked(self) -> list[TrialData]:
        """The trials with a score, the best first."""
        sign = -1 if self.record.mode == "max" else 1
        return sorted(
            self.scored, key=lambda trial: (sign * (trial.score or 0), trial.best_step or 0)
        )


def gather(folder: Path) -> SweepData:
    """Read a sweep's folder. Raises `BadConfigError` if it is none."""
    record = read_record(folder)
    seen = datetime.fromtimestamp((folder / RECORD_FILE).stat().st_mtime, UTC)
    until = record.ended or seen.isoformat()
    pareto = {trial.id for trial in record.pareto_set()}
    trials = [
        _trial(record, index, trial, until, trial.id in pareto)
        for index, trial in enumerate(record.trials.values())
    ]
    axes = build_axes((trial.record.params for trial in trials), record.job.get("space") or {})
    return SweepData(record, folder, seen, trials, axes)


def _trial(
    record: SweepRecord, index: int, trial: TrialRecord, until: str, is_pareto: bool
) -> TrialData:
    curve = read_curve(Path(trial.dir), record.metric)
    seconds = _seconds(trial, curve, until)
    values = tuple(trial.best_metrics.get(item.metric) for item in record.objectives)
    known = tuple(value for value in values if is_number(value))
    objectives = known if len(known) == len(values) else ()
    return TrialData(index, trial, record.score(trial), curve, seconds, objectives, is_pareto)


def _seconds(trial: TrialRecord, curve: Curve, until: str) -> float:
    """Return how long a trial held its resources.

    That of several attempts is what they trained: it may have waited between them.
    """
    if curve.attempts > 1 or trial.state in (TrialState.PENDING, TrialState.PAUSED):
        return curve.seconds
    span = seconds_between(trial.started, trial.ended or until)
    return max(span or 0.0, curve.seconds)
