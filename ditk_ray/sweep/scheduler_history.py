"""Telling a scheduler what happened before it was made: a sweep goes on with a new one.

Schedulers that compare each trial with all others at the same step need the evaluations
of the earlier ones. Those that move a whole population or bracket together have nothing to
compare a new bracket with, and begin one with the trials that go on.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from ray.tune.experiment import Trial
from ray.tune.schedulers import (
    AsyncHyperBandScheduler,
    MedianStoppingRule,
    ResourceChangingScheduler,
    TrialScheduler,
)

from ditk_ray.sweep.trial_source import trial_id
from ditk_ray.tracking.record import SweepRecord
from ditk_ray.tracking.trial_metrics import line_of_progress, read_metrics

_COMPARING = (AsyncHyperBandScheduler, MedianStoppingRule)
_NOBODY = SimpleNamespace(get_live_trials=lambda: (), get_trials=lambda: ())
"""Stands for Tune's controller, where no trial waits."""


def recall_ended(scheduler: TrialScheduler, record: SweepRecord) -> None:
    """Tell a scheduler of the trials that have ended, in the order of their ends."""
    base = _base(scheduler)
    if not isinstance(base, _COMPARING):
        return
    ended = [trial for trial in record.trials.values() if trial.state.is_final]
    for trial in sorted(ended, key=lambda one: one.ended or ""):
        past: Any = SimpleNamespace(trial_id=trial_id(trial.id), status=Trial.TERMINATED)
        base.on_trial_add(_NOBODY, past)
        _recall(base, past, Path(trial.dir))


def recall_open(scheduler: TrialScheduler, trial: Trial, folder: Path) -> None:
    """Tell a scheduler, which has just been given a trial, what that has evaluated so far."""
    base = _base(scheduler)
    if isinstance(base, _COMPARING):
        _recall(base, trial, folder)


def _recall(scheduler: TrialScheduler, trial: Any, folder: Path) -> None:
    rows: list[Mapping[str, Any]] = [*line_of_progress(read_metrics(folder))]
    for number, row in enumerate(rows, start=1):
        # What it decides now was decided then.
        scheduler.on_trial_result(_NOBODY, trial, {"training_iteration": number, **row})


def _base(scheduler: TrialScheduler) -> TrialScheduler:
    if isinstance(scheduler, ResourceChangingScheduler):
        return scheduler._base_scheduler
    return scheduler
