"""The score against each parameter."""

from __future__ import annotations

from collections.abc import Sequence
from math import log10
from statistics import median
from typing import TYPE_CHECKING

from ditk_ray.report.axes import Axis, spread
from ditk_ray.report.charts.chart import ACCENT, INK, Chart, axis, figure, scatter, selected
from ditk_ray.report.charts.drawn import HOVER, dots, drawn_trials
from ditk_ray.report.charts.findings import trend
from ditk_ray.report.charts.ticks import log_ticks
from ditk_ray.report.data import SweepData, TrialData
from ditk_ray.report.values import for_plotly, show

if TYPE_CHECKING:
    from plotly.graph_objects import Scatter

_MARGIN = 0.04  # of an axis, on both sides
_SPREAD = 0.5  # of a category's width
_LABELS = 12  # of categories
_LABEL_LENGTH = 18

Points = list[tuple[TrialData, float]]


def parameter_charts(sweep: SweepData) -> list[Chart]:
    """Draw the score over each parameter that varies."""
    if not sweep.scored:
        return []
    trials = drawn_trials(sweep)
    return [_chart(sweep, index, axis, trials) for index, axis in enumerate(sweep.axes)]


def _chart(sweep: SweepData, index: int, parameter: Axis, trials: Sequence[TrialData]) -> Chart:
    every = _points(parameter, sweep.scored)
    traces = [_dots(parameter, _points(parameter, trials))]
    if parameter.categories is not None:
        traces.append(_medians(every))
    if sweep.best is not None:
        traces.append(_star(parameter, _points(parameter, [sweep.best])))
    traces.append(selected("markers"))
    return Chart(
        f"parameter-{index}",
        parameter.label,
        _finding(parameter, every, sweep.record.mode),
        figure(traces, "", sweep.record.metric, xaxis=_x_axis(parameter)),
        height=240,
    )


def _points(parameter: Axis, trials: Sequence[TrialData]) -> Points:
    places = ((trial, _place(parameter, trial)) for trial in trials)
    return [(trial, place) for trial, place in places if place is not None]


def _place(parameter: Axis, trial: TrialData) -> float | None:
    params = trial.record.params
    return parameter.place(params[parameter.name]) if parameter.name in params else None


def _shown(parameter: Axis, points: Points) -> list[float]:
    """Return the places on the chart: those of a category lie beside each other."""
    if parameter.categories is None:
        return [place for _, place in points]
    return [round(place + _SPREAD * spread(trial.index), 3) for trial, place in points]


def _dots(parameter: Axis, points: Points) -> Scatter:
    return scatter(
        [(trial.index, 1) for trial, _ in points],
        x=_shown(parameter, points),
        y=[trial.score for trial, _ in points],
        mode="markers",
        marker=dots(len(points)),
        hovertemplate=HOVER,
    )


def _star(parameter: Axis, points: Points) -> Scatter:
    return scatter(
        [(trial.index, 1) for trial, _ in points],
        x=_shown(parameter, points),
        y=[trial.score for trial, _ in points],
        mode="markers",
        marker={"symbol": "star", "color": ACCENT, "size": 13},
        hovertemplate=HOVER,
    )


def _medians(points: Points) -> Scatter:
    """Return a short line at the median of each category."""
    medians = _medians_by_place(points)
    return scatter(
        x=[x for place in medians for x in (place - 0.3, place + 0.3, None)],
        y=[y for middle in medians.values() for y in (middle, middle, None)],
        mode="lines",
        line={"color": INK, "width": 2},
    )


def _medians_by_place(points: Points) -> dict[float, float]:
    scores: dict[float, list[float]] = {}
    for trial, place in points:
        scores.setdefault(place, []).append(trial.score or 0.0)
    return {place: float(median(values)) for place, values in sorted(scores.items())}


def _x_axis(parameter: Axis) -> dict[str, object]:
    if parameter.categories is not None:
        return _category_axis(list(parameter.categories.values()))
    if parameter.is_log:
        return _log_axis(parameter)
    margin = _MARGIN * (parameter.upper - parameter.lower)
    return axis("", range=[parameter.lower - margin, parameter.upper + margin])


def _category_axis(labels: list[str]) -> dict[str, object]:
    every = -(-len(labels) // _LABELS)
    places = list(range(0, len(labels), every))
    return axis(
        "",
        tickvals=places,
        ticktext=[for_plotly(_cut(labels[place])) for place in places],
        range=[-0.6, len(labels) - 0.4],
        showgrid=False,
    )


def _log_axis(parameter: Axis) -> dict[str, object]:
    ends = log10(parameter.lower), log10(parameter.upper)
    margin = _MARGIN * (ends[1] - ends[0])
    ticks = log_ticks(parameter.lower, parameter.upper)
    marks = {"tickvals": list(ticks), "ticktext": list(ticks.values())} if len(ticks) > 1 else {}
    return axis("", type="log", range=[ends[0] - margin, ends[1] + margin], **marks)


def _cut(label: str) -> str:
    return label if len(label) <= _LABEL_LENGTH else label[: _LABEL_LENGTH - 1] + "…"


def _finding(parameter: Axis, points: Points, mode: str) -> str:
    if parameter.categories is None:
        scores = [trial.score or 0.0 for trial, _ in points]
        return trend([place for _, place in points], scores, mode)
    labels = list(parameter.categories.values())
    medians = _medians_by_place(points)
    parts = [f"{_cut(labels[int(place)])}: {show(value)}" for place, value in medians.items()]
    more = "" if len(parts) <= _LABELS else ", …"
    return f"Median for {', '.join(parts[:_LABELS])}{more}."
