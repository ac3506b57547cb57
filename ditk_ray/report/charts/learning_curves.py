"""The learning curves of all trials."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from statistics import median
from typing import TYPE_CHECKING, Any

from ditk_ray.report.charts.chart import (
    ACCENT,
    MUTED,
    PAPER,
    QUIET,
    Chart,
    Group,
    Owners,
    figure,
    scatter,
    selected,
)
from ditk_ray.report.curves import Numbers, thinned
from ditk_ray.report.data import SweepData, TrialData
from ditk_ray.report.values import count, show, show_count
from ditk_ray.tracking.record import TrialState

if TYPE_CHECKING:
    from plotly.graph_objects import Scatter

MAX_POINTS = 100_000
"""About how many points all curves may have together."""

_CURVE_POINTS = (60, 1000)  # of one curve, at least and at most
_TRACES = 24  # of a group: lines of one trace do not darken where they cross, others do

_MANY = 100

_GROUPS = (
    ("finished", (TrialState.SUCCEEDED,)),
    ("ended early", (TrialState.STOPPED, TrialState.PRUNED)),
    ("failed", (TrialState.FAILED,)),
    ("not ended", (TrialState.RUNNING, TrialState.PAUSED, TrialState.PENDING)),
)
_END_MARKS = {"ended early": "circle-open", "failed": "x-thin-open", "not ended": "diamond-open"}


class _Drawing:
    """Puts traces together, and remembers which belong to which group."""

    def __init__(self) -> None:
        self.traces: list[Scatter] = []
        self.groups: list[Group] = []

    def add(self, label: str, mark: str, traces: Sequence[Scatter]) -> None:
        first = len(self.traces)
        self.traces += traces
        self.groups.append(Group(label, mark, range(first, len(self.traces))))


def learning_curves(sweep: SweepData) -> Chart | None:
    """Draw the score of every evaluation over environment steps; None without any."""
    drawn = [trial for trial in sweep.trials if trial.curve.evaluations]
    if not drawn:
        return None
    has_steps = any(step is not None for trial in drawn for step in trial.curve.steps)
    limit = min(max(MAX_POINTS // len(drawn), _CURVE_POINTS[0]), _CURVE_POINTS[1])
    lines = {trial.index: _line(trial, has_steps, limit) for trial in drawn}
    hover = _hover(sweep.record.metric, has_steps)

    drawing = _Drawing()
    for label, states in _GROUPS:
        group = [trial for trial in drawn if trial.record.state in states]
        if group:
            name = f"{label} ({len(group)})"
            drawing.add(name, label.replace(" ", "-"), _group(label, group, lines, hover))
    if sweep.best is not None and sweep.best.index in lines:
        drawing.add(f"best: {sweep.best.id}", "best", _best(sweep.best, has_steps, limit, hover))
    x_title = "environment steps" if has_steps else "evaluation"
    drawn_figure = figure([*drawing.traces, selected("lines")], x_title, sweep.record.metric)
    return Chart(
        "curves",
        "Learning curves",
        _caption(sweep, drawn),
        drawn_figure,
        height=420,
        groups=drawing.groups,
    )


def _group(
    label: str, trials: Sequence[TrialData], lines: dict[int, tuple[Numbers, Numbers]], hover: str
) -> list[Scatter]:
    """Return some traces with the lines of all these trials, and one with their ends."""
    own = [(trial.index, *lines[trial.index]) for trial in trials]
    traces = [
        _lines(own[first::_TRACES], len(own), hover) for first in range(min(_TRACES, len(own)))
    ]
    if label in _END_MARKS:
        ends = [(index, _last(steps, scores)) for index, steps, scores in own]
        size = 7 if len(own) < _MANY else 4
        marker = {"symbol": _END_MARKS[label], "color": MUTED, "size": size, "line": {"width": 1}}
        traces.append(
            _points([(index, 1) for index, _ in ends], [e for _, e in ends], marker, hover)
        )
    return traces


def _lines(own: Sequence[tuple[int, Numbers, Numbers]], number: int, hover: str) -> Scatter:
    return scatter(
        [(index, len(steps)) for index, steps, _ in own],
        x=list(chain.from_iterable(steps for _, steps, _ in own)),
        y=list(chain.from_iterable(scores for _, _, scores in own)),
        mode="lines",
        line={"color": QUIET, "width": 1.2 if number < _MANY else 0.7},
        opacity=0.75 if number < _MANY else 0.25,
        hovertemplate=hover,
    )


def _best(trial: TrialData, has_steps: bool, limit: int, hover: str) -> list[Scatter]:
    steps, scores = _line(trial, has_steps, limit)
    traces = [
        scatter(x=steps, y=values, mode="lines", line={"color": ACCENT, "width": 1}, opacity=0.45)
        for seed in trial.curve.seeds.values()
        for steps, values in [_along(trial.curve.steps, seed, has_steps, limit)]
    ]
    owners: Owners = [(trial.index, len(steps))]
    line = {"color": ACCENT, "width": 2.5}
    traces.append(scatter(owners, x=steps, y=scores, mode="lines", line=line, hovertemplate=hover))
    marker = {"symbol": "star", "color": ACCENT, "size": 15, "line": {"color": PAPER, "width": 1}}
    return [*traces, _points([(trial.index, 1)], [_best_point(trial, has_steps)], marker, hover)]


def _best_point(trial: TrialData, has_steps: bool) -> tuple[float | None, float | None]:
    if has_steps:
        return trial.best_step, trial.score
    scores = trial.curve.scores
    return (scores.index(trial.score) + 1 if trial.score in scores else None), trial.score


def _points(
    owners: Owners, points: Sequence[tuple[float | None, float | None]], marker: Any, hover: str
) -> Scatter:
    return scatter(
        owners,
        x=[x for x, _ in points],
        y=[y for _, y in points],
        mode="markers",
        marker=marker,
        hovertemplate=hover,
    )


def _line(trial: TrialData, has_steps: bool, limit: int) -> tuple[Numbers, Numbers]:
    """Return a trial's line, with a gap after it."""
    return _along(trial.curve.steps, trial.curve.scores, has_steps, limit)


def _along(steps: Numbers, scores: Numbers, has_steps: bool, limit: int) -> tuple[Numbers, Numbers]:
    places = thinned(scores, limit)
    x = [steps[place] if has_steps else place + 1 for place in places]
    return [*x, None], [*(_rounded(scores[place]) for place in places), None]


def _rounded(score: float | None) -> float | None:
    """Drop the digits that nobody sees: they are most of the file."""
    return None if score is None else float(f"{score:.6g}")


def _last(steps: Numbers, scores: Numbers) -> tuple[float | None, float | None]:
    known = [point for point in zip(steps, scores, strict=True) if None not in point]
    return known[-1] if known else (None, None)


def _hover(metric: str, has_steps: bool) -> str:
    where = "after %{x:,} steps" if has_steps else "at evaluation %{x}"
    return f"%{{text}}<br>%{{y:.5~g}} {where}<extra></extra>"


def _caption(sweep: SweepData, drawn: Sequence[TrialData]) -> str:
    evaluations = sum(trial.curve.evaluations for trial in drawn)
    text = (
        f"The {sweep.record.metric} of {count(evaluations, 'evaluation')}, "
        f"a line for each of {count(len(drawn), 'trial')}."
    )
    best = sweep.best
    if best is None or best.score is None:
        return text
    after = "" if best.best_step is None else f" after {show_count(best.best_step)} steps"
    text += f" The best, {best.id}, reached {show(best.score)}{after}"
    if len(sweep.scored) > 2:
        middle = median(trial.score or 0.0 for trial in sweep.scored)
        side = "at least" if sweep.record.mode == "max" else "at most"
        text += f"; half of the trials reached {side} {show(float(middle))}"
    seeds = len(best.curve.seeds)
    return text + (f". Its thin lines are its {seeds} seeds." if seeds > 1 else ".")
