"""Which parameters mattered, by Optuna's importance evaluators."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ditk_ray.report.axes import Axis
from ditk_ray.report.data import SweepData, TrialData
from ditk_ray.report.values import key

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.importance import BaseImportanceEvaluator
    from optuna.trial import FrozenTrial

MIN_TRIALS = 15
"""With fewer, what the evaluators say is chance: they miss the only parameter that matters."""

SURE_TRIALS = 30
"""With fewer, they find it most of the time."""

FANOVA_TRIALS = 100
"""Up to here fANOVA is quick, and finds more than PED-ANOVA does; then it takes minutes."""


@dataclass(frozen=True)
class Importances:
    """Shares that add up to 1, the largest first; without any, `reason` says why.

    `left_out` are parameters that the method cannot judge: they exist in some trials only.
    """

    trials: int
    method: str = ""
    shares: Mapping[str, float] = field(default_factory=dict)
    left_out: Sequence[str] = ()
    reason: str = ""


def importances(sweep: SweepData) -> Importances:
    """Judge the parameters by the finished trials."""
    trials = sweep.finished
    scores = {trial.score for trial in trials}
    if not sweep.axes:
        return Importances(len(trials), reason="No parameter varies.")
    if len(trials) < MIN_TRIALS:
        reason = f"That takes at least {MIN_TRIALS} finished trials; there are {len(trials)}."
        return Importances(len(trials), reason=reason)
    if len(scores) == 1:
        return Importances(len(trials), reason="All finished trials have the same score.")
    return _judge(trials, _varied(sweep.axes, trials), sweep.record.mode)


def _judge(trials: Sequence[TrialData], axes: Sequence[Axis], mode: str) -> Importances:
    is_small = len(trials) <= FANOVA_TRIALS
    judged = [axis for axis in axes if not is_small or _is_in_all(axis, trials)]
    left_out = [axis.name for axis in axes if axis not in judged]
    if not judged:
        reason = "Every parameter that varies exists in some of the trials only."
        return Importances(len(trials), left_out=left_out, reason=reason)
    with _quiet_optuna():
        import optuna

        study = optuna.create_study(direction="maximize" if mode == "max" else "minimize")
        distributions = {axis.name: _distribution(axis) for axis in judged}
        study.add_trials([_frozen(trial, judged, distributions) for trial in trials])
        shares = optuna.importance.get_param_importances(
            study, evaluator=_evaluator(len(trials)), params=[axis.name for axis in judged]
        )
    if len(shares) > 1 and len(set(shares.values())) == 1:  # how Optuna says that it cannot tell
        return Importances(len(trials), reason="The scores do not tell the parameters apart.")
    method = "fANOVA" if is_small else "PED-ANOVA"
    ordered = dict(sorted(shares.items(), key=lambda item: -item[1]))
    return Importances(len(trials), method, ordered, left_out)


def _varied(axes: Sequence[Axis], trials: Sequence[TrialData]) -> list[Axis]:
    """Return the axes with more than one value among these trials."""
    values = {
        axis.name: {key(t.record.params[axis.name]) for t in trials if axis.name in t.record.params}
        for axis in axes
    }
    return [axis for axis in axes if len(values[axis.name]) > 1]


def _is_in_all(axis: Axis, trials: Sequence[TrialData]) -> bool:
    return all(axis.name in trial.record.params for trial in trials)


def _evaluator(trials: int) -> BaseImportanceEvaluator:
    from optuna.importance import FanovaImportanceEvaluator, PedAnovaImportanceEvaluator

    if trials <= FANOVA_TRIALS:
        return FanovaImportanceEvaluator(seed=0)
    return PedAnovaImportanceEvaluator()  # of the best tenth among all


def _distribution(axis: Axis) -> BaseDistribution:
    from optuna.distributions import CategoricalDistribution, FloatDistribution

    if axis.categories is not None:
        return CategoricalDistribution(list(axis.categories))
    return FloatDistribution(0.0, 1.0)


def _frozen(
    trial: TrialData, axes: Sequence[Axis], distributions: Mapping[str, BaseDistribution]
) -> FrozenTrial:
    from optuna.trial import create_trial

    drawn = trial.record.params
    present = [axis for axis in axes if axis.name in drawn]
    return create_trial(
        value=trial.score,
        params={axis.name: _told(axis, drawn[axis.name]) for axis in present},
        distributions={axis.name: distributions[axis.name] for axis in present},
    )


def _told(axis: Axis, value: Any) -> str | float:
    """Return a value as Optuna is told it: a number by its place on the axis.

    fANOVA weighs by the width of a range, and would see little but the largest decade of a
    parameter that is drawn by its logarithm.
    """
    if axis.categories is not None:
        return key(value)
    return min(1.0, max(0.0, axis.fraction(float(value))))


@contextmanager
def _quiet_optuna() -> Iterator[None]:
    """Keep Optuna's news off the terminal, and its settings as they were."""
    import optuna

    level = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        optuna.logging.set_verbosity(level)
