"""Which parameters mattered, by Optuna's importance evaluators, and a chart of it."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from ditk_ray.report.charts import ACCENT, QUIET, Chart, figure
from ditk_ray.report.data import Axis, SweepData, TrialData, count, for_plotly, key

MIN_TRIALS = 15
"""With fewer, what the evaluators say is chance: they miss the only parameter that matters."""

SURE_TRIALS = 30
"""With fewer, they find it most of the time."""

FANOVA_TRIALS = 100
"""Up to here fANOVA is quick, and finds more than PED-ANOVA does; then it takes minutes."""

_ROW = 30
_EDGES = 70


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
    if not sweep.axes:
        return Importances(len(trials), reason="No parameter varies.")
    if len(trials) < MIN_TRIALS:
        reason = f"That takes at least {MIN_TRIALS} finished trials; there are {len(trials)}."
        return Importances(len(trials), reason=reason)
    if len({trial.score for trial in trials}) == 1:
        return Importances(len(trials), reason="All finished trials have the same score.")
    varied = [axis for axis in sweep.axes if _varies(axis, trials)]
    return _judge(trials, varied, sweep.record.mode)


def _judge(trials: Sequence[TrialData], axes: Sequence[Axis], mode: str) -> Importances:
    is_small = len(trials) <= FANOVA_TRIALS
    in_all = set.intersection(*(set(trial.record.params) for trial in trials))
    judged = [axis for axis in axes if not is_small or axis.name in in_all]
    left_out = [axis.name for axis in axes if axis not in judged]
    if not judged:
        reason = "Every parameter that varies exists in some of the trials only."
        return Importances(len(trials), left_out=left_out, reason=reason)
    shares = _shares(trials, judged, mode, is_small)
    if len(shares) > 1 and len(set(shares.values())) == 1:  # Optuna cannot tell
        return Importances(len(trials), reason="The scores do not distinguish the parameters.")
    method = "fANOVA" if is_small else "PED-ANOVA"
    ordered = dict(sorted(shares.items(), key=lambda item: -item[1]))
    return Importances(len(trials), method, ordered, left_out)


def _varies(axis: Axis, trials: Sequence[TrialData]) -> bool:
    drawn = [trial.record.params for trial in trials]
    return len({key(params[axis.name]) for params in drawn if axis.name in params}) > 1


def _shares(
    trials: Sequence[TrialData], axes: Sequence[Axis], mode: str, is_small: bool
) -> dict[str, float]:
    with _quiet_optuna():
        import optuna  # heavy
        from optuna.distributions import CategoricalDistribution, FloatDistribution

        study = optuna.create_study(direction="maximize" if mode == "max" else "minimize")
        drawn_from = {
            axis.name: FloatDistribution(0.0, 1.0)
            if axis.categories is None
            else CategoricalDistribution(list(axis.categories))
            for axis in axes
        }
        for trial in trials:
            drawn = trial.record.params
            given = {a.name: _given(a, drawn[a.name]) for a in axes if a.name in drawn}
            known = {name: drawn_from[name] for name in given}
            study.add_trial(
                optuna.create_trial(value=trial.score, params=given, distributions=known)
            )
        judges = optuna.importance
        fanova, ped_anova = judges.FanovaImportanceEvaluator, judges.PedAnovaImportanceEvaluator
        return dict(
            judges.get_param_importances(
                study,
                evaluator=fanova(seed=0) if is_small else ped_anova(),
                params=list(drawn_from),
            )
        )


def _given(axis: Axis, value: Any) -> str | float:
    """Return a value as Optuna is given it: a number by its place on the axis.

    fANOVA weighs by the width of a range, and would see little but the largest decade of a
    parameter that is drawn by its logarithm.
    """
    if axis.categories is not None:
        return key(value)
    return min(1.0, max(0.0, axis.fraction(float(value))))


@contextmanager
def _quiet_optuna() -> Iterator[None]:
    import optuna  # slow to import

    level = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        optuna.logging.set_verbosity(level)


def importance_chart(found: Importances, labels: Mapping[str, str]) -> Chart | None:
    """Draw a bar for each parameter; None if nothing could be said."""
    if not found.shares:
        return None
    names = list(found.shares)
    bars = {
        "type": "bar",
        "x": [found.shares[name] for name in names],
        "y": list(range(len(names))),
        "orientation": "h",
        "marker": {"color": [ACCENT, *[QUIET] * (len(names) - 1)]},
        "text": [f"{found.shares[name]:.0%}" for name in names],
        "textposition": "outside",
        "cliponaxis": False,
        "hoverinfo": "skip",
    }
    still = {"fixedrange": True}
    drawing = figure(
        [bars],
        "",
        "",
        dragmode=False,
        margin={"l": 8, "r": 44, "t": 4, "b": 8},
        xaxis={**still, "rangemode": "tozero", "visible": False},
        yaxis={
            **still,
            "tickvals": list(range(len(names))),
            "ticktext": [for_plotly(labels.get(name, name)) for name in names],
            "autorange": "reversed",
            "showgrid": False,
            "ticks": "",
        },
    )
    height = _EDGES + _ROW * len(names)
    return Chart("importances", caption(found, labels), drawing, height)


def caption(found: Importances, labels: Mapping[str, str]) -> str:
    """Say what matters most, how that was found, and what was left out."""
    if not found.shares:
        return found.reason
    first, share = next(iter(found.shares.items()))
    text = (
        f"{labels.get(first, first)} mattered most ({share:.0%}), by Optuna's {found.method} over "
        f"{count(found.trials, 'finished trial')}. The shares add up to 100%."
    )
    if found.trials < SURE_TRIALS:
        text += " With so few trials this is only a hint."
    if found.left_out:
        names = ", ".join(labels.get(name, name) for name in found.left_out)
        text += f" Left out, since not every trial has it: {names}."
    return text
