"""Parallel coordinates: a line for each trial across all parameters.

Lines over plain axes instead of Plotly's own `parcoords`, which needs WebGL and has its
colours and labels out of reach of a theme.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ditk_ray.report.axes import Axis, spread
from ditk_ray.report.charts.chart import (
    ACCENT,
    INK,
    MUTED,
    PAPER,
    QUIET,
    Chart,
    figure,
    scatter,
    selected,
)
from ditk_ray.report.charts.drawn import HOVER
from ditk_ray.report.data import SweepData, TrialData
from ditk_ray.report.values import count, for_plotly, show

if TYPE_CHECKING:
    from plotly.graph_objects import Figure, Scatter

BINS = 6
"""Colours from the worst to the best, `--rank-0` and so on; one trace each."""

ABSENT = -0.12
"""The height of a parameter that a trial does not have."""

MIN_TRIALS = 2
_LABELS = 6
_TOP = 10  # one of so many trials is among the best
_NARROW = 0.5  # of an axis: what the best agree on
_MANY = 100

Lines = Mapping[int, list[float]]
"""A trial's height on each axis, by its index."""


def parallel(sweep: SweepData) -> Chart | None:
    """Draw all trials with a score; None with fewer than two or if nothing varies."""
    ranked = sweep.ranked
    if len(ranked) < MIN_TRIALS or not sweep.axes:
        return None
    axes = [*sweep.axes, _score_axis(sweep)]
    lines = {trial.index: _line(axes, trial) for trial in ranked}
    ranks = _ranks(ranked)
    opacity = 0.85 if len(ranked) < _MANY else 0.35
    traces = [
        _trace(
            {index: lines[index] for index in reversed(lines) if ranks[index] == rank},
            {"color": f"var(--rank-{rank})", "width": 1.3 if len(ranked) < _MANY else 0.8},
            opacity,
        )
        for rank in range(BINS)
    ]
    best = {ranked[0].index: lines[ranked[0].index]}
    traces += [_trace(best, {"color": ACCENT, "width": 3}, 1.0), selected("lines")]
    return Chart(
        "parallel",
        "Parallel coordinates",
        _caption(sweep),
        _figure(traces, axes, lines),
        height=400,
    )


def agreement(sweep: SweepData) -> str:
    """Say which parameter the best trials agree on most, if there is one."""
    top = sweep.ranked[: max(3, len(sweep.ranked) // _TOP)]
    if len(sweep.ranked) < 2 * len(top):
        return ""
    ranges = {}
    for axis in sweep.axes:
        places = [axis.place(t.record.params.get(axis.name)) for t in top]
        known = [place for place in places if place is not None]
        if axis.categories is None and len(known) == len(top):
            ranges[axis] = min(known), max(known)

    def width(axis: Axis) -> float:
        lower, upper = ranges[axis]
        return axis.fraction(upper) - axis.fraction(lower)

    found = min(ranges, key=width, default=None)
    if found is None or width(found) > _NARROW:
        return ""
    lower, upper = ranges[found]
    return (
        f"The best {len(top)} agree most on {found.label}: {show(lower)} to {show(upper)}, "
        f"of {show(found.lower)} to {show(found.upper)}."
    )


def _score_axis(sweep: SweepData) -> Axis:
    scores = [trial.score or 0.0 for trial in sweep.scored]
    lower, upper = min(scores), max(scores)
    return Axis("", sweep.record.metric, lower, upper if upper > lower else lower + 1)


def _ranks(ranked: Sequence[TrialData]) -> dict[int, int]:
    """Return each trial's colour by the share of trials that are worse; equals have the same."""
    worse: dict[float | None, int] = {}
    for place, trial in enumerate(reversed(ranked)):
        worse.setdefault(trial.score, place)
    return {t.index: min(BINS - 1, BINS * worse[t.score] // len(ranked)) for t in ranked}


def _line(axes: Sequence[Axis], trial: TrialData) -> list[float]:
    values = {**trial.record.params, axes[-1].name: trial.score}
    return [_height(axis, values, spread(trial.index)) for axis in axes]


def _height(axis: Axis, values: Mapping[str, Any], shift: float) -> float:
    place = axis.place(values[axis.name]) if axis.name in values else None
    return ABSENT if place is None else round(axis.fraction(place, shift), 4)


def _trace(lines: Lines, style: dict[str, Any], opacity: float) -> Scatter:
    """Return one trace with a gap after each line."""
    return scatter(
        [(index, len(line) + 1) for index, line in lines.items()],
        x=[x for line in lines.values() for x in (*range(len(line)), None)],
        y=[y for line in lines.values() for y in (*line, None)],
        mode="lines",
        line=style,
        opacity=opacity,
        hovertemplate=HOVER,
    )


def _figure(traces: Sequence[Scatter], axes: Sequence[Axis], lines: Lines) -> Figure:
    absent = [any(line[place] == ABSENT for line in lines.values()) for place in range(len(axes))]
    hidden = {"visible": False, "fixedrange": True}
    labels = [
        label for place, axis in enumerate(axes) for label in _labels(place, axis, absent[place])
    ]
    return figure(
        traces,
        "",
        "",
        dragmode=False,
        margin={"l": 50, "r": 50, "t": 66, "b": 30},
        xaxis={**hidden, "range": [-0.05, len(axes) - 0.95]},
        yaxis={**hidden, "range": [ABSENT - 0.02 if any(absent) else -0.02, 1.02]},
        shapes=[_rule(place) for place in range(len(axes))],
        annotations=labels,
    )


def _rule(place: int) -> dict[str, Any]:
    line = {"color": QUIET, "width": 1}
    return {
        "type": "line", "x0": place, "x1": place, "y0": 0, "y1": 1, "line": line, "layer": "below",
    }  # fmt: skip


def _labels(place: int, axis: Axis, has_absent: bool) -> list[dict[str, Any]]:
    """Return an axis's name and its values; the page's script puts them where there is room."""
    ticks = _ticks(axis) | ({ABSENT: "absent"} if has_absent else {})
    plain = {"x": place, "showarrow": False}
    name = {"name": "axis", "y": 1, "text": f"<b>{for_plotly(axis.label)}</b>"}
    small = {"font": {"size": 11, "color": MUTED}, "bgcolor": PAPER, "borderpad": 1}
    return [
        {**plain, **small, **name, "font": {"size": 12, "color": INK}},
        *(
            {**plain, **small, "name": "tick", "y": height, "text": for_plotly(text)}
            for height, text in ticks.items()
        ),
    ]


def _ticks(axis: Axis) -> dict[float, str]:
    if axis.categories is None:
        return {0.0: show(axis.lower), 1.0: show(axis.upper)}
    labels = list(axis.categories.values())
    every = -(-len(labels) // _LABELS)
    return {axis.fraction(place): labels[place] for place in range(0, len(labels), every)}


def _caption(sweep: SweepData) -> str:
    text = (
        f"A line for each of {count(len(sweep.scored), 'trial')}, across what varied, "
        "coloured by its rank; the thick line is the best."
    )
    return f"{text} {agreement(sweep)}".strip()
