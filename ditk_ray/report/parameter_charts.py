"""Charts of the parameters: parallel coordinates, and the score over each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from math import log10
from operator import itemgetter
from statistics import median
from typing import Any

from ditk_ray.report import charts
from ditk_ray.report.charts import GAP, Chart, Point, Trace
from ditk_ray.report.data import (
    Axis,
    SweepData,
    TrialData,
    count,
    for_plotly,
    log_ticks,
    show,
    spread,
)

BINS = 6
"""Colours from the worst to the best, `--rank-0` and so on; one trace each."""

ABSENT = -0.12
"""The height of a parameter that a trial does not have."""

_AXIS_LABELS = 6
_TOP = 10  # one of so many trials is among the best
_NARROW = 0.5  # of an axis: what the best agree on
_MANY = 100

_MARGIN = 0.04  # of an axis, on both sides
_SPREAD = 0.5  # of a category's width
_LABELS = 12  # of categories
_LABEL_LENGTH = 18
Points = list[tuple[TrialData, float]]


def parallel(sweep: SweepData) -> Chart | None:
    """Draw all trials with a score; None with fewer than two or if nothing varies."""
    ranked = sweep.ranked
    if len(ranked) < charts.MIN_TRIALS or not sweep.axes:
        return None
    scores = [trial.score or 0.0 for trial in ranked]
    upper = max(scores) if max(scores) > min(scores) else min(scores) + 1
    axes = [*sweep.axes, Axis("", sweep.record.metric, min(scores), upper)]
    lines = {trial.index: _line(axes, trial) for trial in ranked}
    ranks = _ranks(ranked)
    width, opacity = (1.3, 0.85) if len(ranked) < _MANY else (0.8, 0.35)
    traces = [
        charts.owned(
            {index: lines[index] for index in reversed(lines) if ranks[index] == rank},
            mode="lines",
            line={"color": f"var(--rank-{rank})", "width": width},
            opacity=opacity,
        )
        for rank in range(BINS)
    ]
    best, thick = {ranked[0].index: lines[ranked[0].index]}, {"color": charts.ACCENT, "width": 3}
    traces.append(charts.owned(best, mode="lines", line=thick, opacity=1.0))
    caption = (
        f"A line for each of {count(len(ranked), 'trial')}, across what varied, "
        f"coloured by its rank; the thick line is the best. {agreement(sweep)}"
    )
    return Chart("parallel", caption.strip(), _figure(traces, axes, lines), height=400)


def agreement(sweep: SweepData) -> str:
    """Say which parameter the best trials agree on most, if there is one."""
    top = sweep.ranked[: max(3, len(sweep.ranked) // _TOP)]
    if len(sweep.ranked) < 2 * len(top):
        return ""
    found = []
    for item in sweep.axes:
        places = [item.place(trial.record.params.get(item.name)) for trial in top]
        known = [place for place in places if place is not None]
        if item.categories is None and len(known) == len(top):
            width = item.fraction(max(known)) - item.fraction(min(known))
            found.append((width, item, min(known), max(known)))
    width, axis, lower, upper = min(found, key=itemgetter(0), default=(1.0, None, 0.0, 0.0))
    if axis is None or width > _NARROW:
        return ""
    return (
        f"The best {len(top)} agree most on {axis.label}: {show(lower)} to {show(upper)}, "
        f"of {show(axis.lower)} to {show(axis.upper)}."
    )


def _ranks(ranked: Sequence[TrialData]) -> dict[int, int]:
    worse: dict[float | None, int] = {}
    for place, trial in enumerate(reversed(ranked)):
        worse.setdefault(trial.score, place)
    return {t.index: min(BINS - 1, BINS * worse[t.score] // len(ranked)) for t in ranked}


def _line(axes: Sequence[Axis], trial: TrialData) -> list[Point]:
    values = {**trial.record.params, axes[-1].name: trial.score}
    places = [axis.place(values[axis.name]) if axis.name in values else None for axis in axes]
    heights = [
        ABSENT if place is None else round(axis.fraction(place, spread(trial.index)), 4)
        for axis, place in zip(axes, places, strict=True)
    ]
    return [*enumerate(heights), GAP]


def _figure(
    traces: Sequence[Trace], axes: Sequence[Axis], lines: Mapping[int, Sequence[Point]]
) -> charts.Figure:
    points = {point for line in lines.values() for point in line}
    absent = [(place, ABSENT) in points for place in range(len(axes))]
    hidden = {"visible": False, "fixedrange": True}
    return charts.figure(
        traces,
        "",
        "",
        dragmode=False,
        margin={"l": 50, "r": 50, "t": 66, "b": 30},
        xaxis={**hidden, "range": [-0.05, len(axes) - 0.95]},
        yaxis={**hidden, "range": [ABSENT - 0.02 if any(absent) else -0.02, 1.02]},
        shapes=[{"x0": place, "x1": place, "y0": 0, "y1": 1} for place in range(len(axes))],
        annotations=[
            label
            for place, axis in enumerate(axes)
            for label in _labels(place, axis, absent[place])
        ],
    )


def _labels(place: int, axis: Axis, has_absent: bool) -> list[dict[str, Any]]:
    ticks = _ticks(axis) | ({ABSENT: "absent"} if has_absent else {})
    name = {"name": "axis", "x": place, "y": 1, "text": f"<b>{for_plotly(axis.label)}</b>"}
    return [
        name | {"font": {"size": 12, "color": charts.INK}},
        *(
            {"name": "tick", "x": place, "y": height, "text": for_plotly(text)}
            for height, text in ticks.items()
        ),
    ]


def _ticks(axis: Axis) -> dict[float, str]:
    if axis.categories is None:
        return {0.0: show(axis.lower), 1.0: show(axis.upper)}
    labels = list(axis.categories.values())
    every = -(-len(labels) // _AXIS_LABELS)
    return {axis.fraction(place): labels[place] for place in range(0, len(labels), every)}


def parameter_charts(sweep: SweepData) -> list[Chart]:
    if not sweep.scored:
        return []
    trials = charts.drawn_trials(sweep)
    return [_chart(sweep, index, axis, trials) for index, axis in enumerate(sweep.axes)]


def _chart(sweep: SweepData, index: int, parameter: Axis, trials: Sequence[TrialData]) -> Chart:
    every = _points(parameter, sweep.scored)
    points = _points(parameter, trials)
    traces = [_marks(parameter, points, charts.dots(len(points)))]
    if parameter.categories is not None:
        traces.append(_medians(every))
    if sweep.best is not None:
        star = {"symbol": "star", "color": charts.ACCENT, "size": 13}
        traces.append(_marks(parameter, _points(parameter, [sweep.best]), star))
    drawing = charts.figure(traces, "", sweep.record.metric, xaxis=_x_axis(parameter))
    caption = _finding(parameter, every, sweep.record.mode)
    return Chart(f"parameter-{index}", caption, drawing, height=240, title=parameter.label)


def _points(parameter: Axis, trials: Sequence[TrialData]) -> Points:
    known = [trial for trial in trials if parameter.name in trial.record.params]
    places = ((trial, parameter.place(trial.record.params[parameter.name])) for trial in known)
    return [(trial, place) for trial, place in places if place is not None]


def _marks(parameter: Axis, points: Points, marker: dict[str, Any]) -> Trace:
    width = 0.0 if parameter.categories is None else _SPREAD
    shift = {trial.index: width * spread(trial.index) for trial, _ in points}
    return charts.marks(
        {t.index: (round(x + shift[t.index], 3) if width else x, t.score) for t, x in points},
        marker,
    )


def _medians(points: Points) -> Trace:
    lines = [
        [(place - 0.3, middle), (place + 0.3, middle), GAP]
        for place, middle in _medians_by_place(points).items()
    ]
    return charts.scatter([*chain(*lines)], mode="lines", line={"color": charts.INK, "width": 2})


def _medians_by_place(points: Points) -> dict[float, float]:
    scores: dict[float, list[float]] = {}
    for trial, place in points:
        scores.setdefault(place, []).append(trial.score or 0.0)
    return {place: float(median(values)) for place, values in sorted(scores.items())}


def _x_axis(parameter: Axis) -> dict[str, object]:
    if parameter.categories is not None:
        labels = list(parameter.categories.values())
        places = list(range(0, len(labels), -(-len(labels) // _LABELS)))
        return {
            "tickvals": places,
            "ticktext": [for_plotly(_cut(labels[place])) for place in places],
            "range": [-0.6, len(labels) - 0.4],
            "showgrid": False,
        }
    ends = parameter.lower, parameter.upper
    lower, upper = map(log10, ends) if parameter.is_log else ends
    margin = _MARGIN * (upper - lower)
    axis: dict[str, object] = {"range": [lower - margin, upper + margin]}
    ticks = log_ticks(*ends) if parameter.is_log else {}
    if len(ticks) > 1:
        axis |= {"tickvals": list(ticks), "ticktext": list(ticks.values())}
    return axis | {"type": "log"} if parameter.is_log else axis


def _cut(label: str) -> str:
    return label if len(label) <= _LABEL_LENGTH else label[: _LABEL_LENGTH - 1] + "…"


def _finding(parameter: Axis, points: Points, mode: str) -> str:
    if parameter.categories is None:
        scores = [trial.score or 0.0 for trial, _ in points]
        return charts.trend([place for _, place in points], scores, mode)
    labels = list(parameter.categories.values())
    medians = _medians_by_place(points)
    parts = [f"{_cut(labels[int(place)])}: {show(value)}" for place, value in medians.items()]
    more = "" if len(parts) <= _LABELS else ", …"
    return f"Median for {', '.join(parts[:_LABELS])}{more}."
