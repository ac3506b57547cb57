"""Telling a scheduler what happened before it was made: a sweep goes on with a new one.

Schedulers that compare each trial with all others at the same step need the evaluations
of the earlier ones. Those that move a whole population or bracket together have nothing to
compare a new bracket with, and begin one with the trials that go on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from ray.tune.experiment import Trial
from ray.tune.result import TRAINING_ITERATION
from ray.tune.schedulers import (
    AsyncHyperBandScheduler,
    MedianStoppingRule,
    TrialScheduler,
)

from ditk_ray.search.schedulers import base_of
from ditk_ray.sweep.trial_source import trial_id
from ditk_ray.tracking.record import SweepRecord
from ditk_ray.tracking.trial_metrics import line_of_progress, read_metrics

_COMPARING = (AsyncHyperBandScheduler, MedianStoppingRule)
_NOBODY = SimpleNamespace(get_live_trials=lambda: (), get_trials=lambda: ())
"""Stands for Tune's controller, where no trial waits."""


@dataclass(frozen=True)
class _Past:
    """Stands for a trial that has ended; schedulers use it as a key, too."""

    trial_id: str
    status: str = Trial.TERMINATED


def recall_ended(scheduler: TrialScheduler, record: SweepRecord) -> None:
    """Tell a scheduler of the trials that have ended, in the order of their ends."""
    base = base_of(scheduler)
    if not isinstance(base, _COMPARING):
        return
    ended = [trial for trial in record.trials.values() if trial.state.is_final]
    for trial in sorted(ended, key=lambda one: one.ended or ""):
        past: Any = _Past(trial_id(trial.id))
        base.on_trial_add(_NOBODY, past)
        _recall(base, past, Path(trial.dir))


def recall_open(scheduler: TrialScheduler, trial: Trial, folder: Path) -> None:
    """Tell a scheduler, which has just been given a trial, what that has evaluated so far."""
    base = base_of(scheduler)
    if isinstance(base, _COMPARING):
        _recall(base, trial, folder)


def _recall(scheduler: TrialScheduler, trial: Any, folder: Path) -> None:
    rows = numbered_rows(folder)
    if isinstance(scheduler, MedianStoppingRule):
        _fill_median(scheduler, trial, rows)
        return
    for row in rows:
        # What it decides now was decided then.
        scheduler.on_trial_result(_NOBODY, trial, row)


def _fill_median(scheduler: MedianStoppingRule, trial: Any, rows: list[dict[str, Any]]) -> None:
    """Give Tune's median rule the evaluations without a decision on them.

    It may never be shown a trial again that it has decided to stop, and with others to compare
    with than at that time it would decide otherwise.
    """
    needed = (scheduler._time_attr, scheduler._metric)
    whole = [row for row in rows if all(isinstance(row.get(name), Real) for name in needed)]
    if whole:  # the rule looks at the last evaluation of every trial that it knows
        scheduler._results[trial].extend(whole)


def numbered_rows(folder: Path) -> list[dict[str, Any]]:
    """Return a trial's evaluations with the number that Tune gave to each, from 1 on."""
    rows: list[Mapping[str, Any]] = [*line_of_progress(read_metrics(folder))]
    return [{TRAINING_ITERATION: number, **row} for number, row in enumerate(rows, start=1)]
