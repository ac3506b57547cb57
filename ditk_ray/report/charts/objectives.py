"""Two objectives against each other, and what no trial beats."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ditk_ray.config.objectives import Objective
from ditk_ray.report.charts.chart import ACCENT, Chart, figure, scatter, selected
from ditk_ray.report.charts.drawn import HOVER, dots, drawn_trials
from ditk_ray.report.data import SweepData, TrialData
from ditk_ray.report.values import count

if TYPE_CHECKING:
    from plotly.graph_objects import Scatter


def objectives_chart(sweep: SweepData) -> Chart | None:
    """Draw the first two objectives with the Pareto set; None if no trial has all of them."""
    if not sweep.pareto:
        return None
    first, second = sweep.record.objectives[:2]
    behind = [trial for trial in drawn_trials(sweep) if trial.objectives and not trial.is_pareto]
    traces = [_points(behind, dots(len(behind)))]
    if len(sweep.record.objectives) == 2:
        traces.append(_front(sweep.pareto, second))
    traces.append(_points(sweep.pareto, {"color": ACCENT, "size": 9, "symbol": "diamond"}))
    traces.append(selected("markers"))
    return Chart(
        "objectives",
        "Pareto set",
        _caption(sweep),
        figure(traces, _axis_title(second), _axis_title(first)),
        height=340,
    )


def _points(trials: Sequence[TrialData], marker: dict[str, object]) -> Scatter:
    return scatter(
        [(trial.index, 1) for trial in trials],
        x=[trial.objectives[1] for trial in trials],
        y=[trial.objectives[0] for trial in trials],
        mode="markers",
        marker=marker,
        hovertemplate=HOVER,
    )


def _front(trials: Sequence[TrialData], second: Objective) -> Scatter:
    """Return the edge of what the trials of the set reach together."""
    places = sorted((trial.objectives[1], trial.objectives[0]) for trial in trials)
    # Where less is better, what was reached holds to the right; else to the left.
    shape = "hv" if second.mode == "min" else "vh"
    return scatter(
        x=[x for x, _ in places],
        y=[y for _, y in places],
        mode="lines",
        line={"color": ACCENT, "width": 2, "shape": shape},
    )


def _axis_title(objective: Objective) -> str:
    return f"{objective.metric} ({'more' if objective.mode == 'max' else 'less'} is better)"


def _caption(sweep: SweepData) -> str:
    objectives = sweep.record.objectives
    names = [objective.metric for objective in objectives]
    text = (
        f"Each trial at its best {names[0]}. {count(len(sweep.pareto), 'trial')} (diamonds) "
        f"{'is' if len(sweep.pareto) == 1 else 'are'} beaten by none: what is better in one of "
        f"{', '.join(names[:-1])} and {names[-1]} is worse in another."
    )
    if len(objectives) > 2:
        text += f" Drawn are {names[0]} and {names[1]} only, so that some seem to be beaten."
    return text
