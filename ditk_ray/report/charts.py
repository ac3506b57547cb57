"""What all charts share: their parts, their colours, and whose a point is.

Colours are names of the page's own (`var(--accent)`), so that they follow its theme. The
page's script puts them in, the names of the trials into the hover texts, and the plain look that
all charts have.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, pairwise
from statistics import StatisticsError, correlation, fmean, median
from typing import Any

from ditk_ray.config.terms import Objective
from ditk_ray.record.record import TrialState
from ditk_ray.report.data import (
    Numbers,
    SweepData,
    TrialData,
    count,
    for_plotly,
    show,
    show_count,
    thinned,
)
from ditk_ray.util import dotted

ACCENT = "var(--accent)"
INK = "var(--ink)"
MUTED = "var(--muted)"
QUIET = "var(--quiet)"
PAPER = "var(--paper)"

Trace = dict[str, Any]
Figure = dict[str, Any]
"""What Plotly draws, as it wants it: `data`, which are traces, and a `layout`."""

Point = tuple[float | None, float | None]
GAP: Point = (None, None)

MAX_POINTS = 2000
"""How many trials a chart draws as points."""

_MANY = 300
CLEAR = 0.3
"""From which rank correlation on a trend is worth a word."""

TELLING = 0.2
"""From which share of the ranks' variance on a part of an axis is worth a word."""

_MIN_TREND = 5
_PARTS = 5
_MIN_PARTS = 6 * _PARTS
MIN_TRIALS = 2


@dataclass(frozen=True)
class Group:
    """Traces that a reader can switch off together; `mark` is the style of their sign."""

    label: str
    mark: str
    traces: Sequence[int]


@dataclass(frozen=True)
class Chart:
    """A figure and the words around it, which are text without markup."""

    id: str
    caption: str
    figure: Figure
    height: int = 300
    groups: Sequence[Group] = ()
    title: str = ""


def figure(traces: Iterable[Trace], x_title: str, y_title: str, **layout: Any) -> Figure:
    """Return a figure; titles are texts, not markup."""
    axes = {"xaxis": x_title, "yaxis": y_title}
    named = {
        axis: {"title": {"text": for_plotly(title), "standoff": 8}} if title else {}
        for axis, title in axes.items()
    }
    return {"data": list(traces), "layout": dotted.merged(named, layout)}


def scatter(points: Sequence[Point], **style: Any) -> Trace:
    """Return a trace of points that belong to no trial."""
    x, y = [x for x, _ in points], [y for _, y in points]
    return {"type": "scatter", "x": x, "y": y, "hoverinfo": "skip", **style}


def owned(points: Mapping[int, Sequence[Point]], **style: Any) -> Trace:
    """Return a trace of trials' points, by the trials' indices.

    In its `owners`, a trial and the number of its points each, the page's script looks up whose
    a point is.
    """
    owners = [(index, len(own)) for index, own in points.items()]
    about = {"meta": {"owners": owners}, "hovertemplate": "%{text}<extra></extra>"}
    return scatter([*chain(*points.values())], **{"hoverinfo": "all", **about, **style})


def marks(points: Mapping[int, Point], marker: dict[str, Any]) -> Trace:
    return owned({i: [point] for i, point in points.items()}, mode="markers", marker=marker)


def drawn_trials(sweep: SweepData) -> list[TrialData]:
    """Return the trials with a score, or the best and an even choice of the others."""
    ranked = sweep.ranked
    if len(ranked) <= MAX_POINTS:
        return sweep.scored
    top, rest = ranked[: MAX_POINTS // 4], ranked[MAX_POINTS // 4 :]
    wanted = MAX_POINTS - len(top)
    kept = {trial.index for trial in top}
    kept |= {rest[place * len(rest) // wanted].index for place in range(wanted)}
    return [trial for trial in sweep.scored if trial.index in kept]


def dots(number: int) -> dict[str, Any]:
    """Return how this many points are marked: many are small, and show where they are dense."""
    size, opacity = (6, 0.8) if number <= _MANY else (4, 0.5)
    return {"color": QUIET, "size": size, "opacity": opacity}


def notes_on_points(sweep: SweepData) -> str:
    """Say so if not all trials are drawn as points, or not with all their values."""
    notes = []
    total = len(sweep.scored)
    if total > MAX_POINTS:
        notes.append(
            f"{show_count(MAX_POINTS)} of {show_count(total)} trials are drawn as points: "
            "the best, and an even choice of the others."
        )
    if any(trial.record.changes for trial in sweep.trials):
        notes.append("Where a scheduler changed a parameter on the way, its last value counts.")
    return " ".join(notes)


def trend(places: Sequence[float], scores: Sequence[float], mode: str) -> str:
    """Say whether the score rises or falls along an axis, or where it is best."""
    if len(scores) < _MIN_TREND:
        return "Too few trials for a trend."
    ranks = _ranks(scores)
    try:
        value = correlation(_ranks(places), ranks)
    except StatisticsError:  # all the same
        return "No trend."
    if abs(value) >= CLEAR:
        how = "rises" if value > 0 else "falls"
        return f"The score {how} with it (rank correlation {value:.2f})."
    peak = _peak(places, scores, ranks, mode)
    return peak or f"No clear trend (rank correlation {value:.2f})."


def _peak(
    places: Sequence[float], scores: Sequence[float], ranks: Sequence[float], mode: str
) -> str:
    if len(scores) < _MIN_PARTS:
        return ""
    order = sorted(range(len(places)), key=lambda item: places[item])
    ends = [part * len(order) // _PARTS for part in range(_PARTS + 1)]
    parts = [order[start:end] for start, end in pairwise(ends)]
    if _between(parts, ranks) < TELLING:
        return ""
    better = max if mode == "max" else min
    best = better(parts, key=lambda part: median(scores[item] for item in part))
    inside = float(median(scores[item] for item in best))
    return (
        f"Best between {show(places[best[0]])} and {show(places[best[-1]])}: the median there "
        f"is {show(inside)}, that of all {show(float(median(scores)))}."
    )


def _between(parts: Sequence[Sequence[int]], ranks: Sequence[float]) -> float:
    mean = fmean(ranks)
    total = sum((rank - mean) ** 2 for rank in ranks)
    if not total:
        return 0.0
    between = sum(len(part) * (fmean(ranks[i] for i in part) - mean) ** 2 for part in parts)
    return 1 - (1 - between / total) * (len(ranks) - 1) / (len(ranks) - len(parts))


def _ranks(values: Sequence[float]) -> list[float]:
    ordered = sorted(values)
    return [(bisect_left(ordered, value) + bisect_right(ordered, value)) / 2 for value in values]


def history(sweep: SweepData) -> Chart | None:
    """Draw each trial's score and the best one so far; None with fewer than two."""
    scored = sweep.scored
    if len(scored) < MIN_TRIALS:
        return None
    better = max if sweep.record.mode == "max" else min
    scores = [trial.score or 0.0 for trial in scored]
    best = list(accumulate(scores, better))
    points = {trial.index: (trial.index + 1, trial.score) for trial in drawn_trials(sweep)}
    steps = [(trial.index + 1, score) for trial, score in zip(scored, best, strict=True)]
    line = {"color": ACCENT, "width": 2.5, "shape": "hv"}
    traces = [marks(points, dots(len(points))), scatter(steps, mode="lines", line=line)]
    last = scored[best.index(best[-1])]
    caption = (
        f"Each trial's {sweep.record.metric}, in the order they were made, and the best so far "
        f"(line). The last improvement, to {show(best[-1])}, came with "
        f"{last.id}, number {last.index + 1} of {len(sweep.trials)}."
    )
    return Chart("history", caption, figure(traces, "trial", sweep.record.metric))


def objectives_chart(sweep: SweepData) -> Chart | None:
    """Draw the first two objectives with the Pareto set; None if no trial has all of them."""
    if not sweep.pareto:
        return None
    first, second = sweep.record.objectives[:2]
    behind = [trial for trial in drawn_trials(sweep) if trial.objectives and not trial.is_pareto]
    traces = [marks(_places(behind), dots(len(behind)))]
    front = _places(sweep.pareto)
    if len(sweep.record.objectives) == 2:
        # Where less is better, what was reached holds to the right; else to the left.
        line = {"color": ACCENT, "width": 2, "shape": "hv" if second.mode == "min" else "vh"}
        traces.append(scatter(sorted(front.values()), mode="lines", line=line))
    traces.append(marks(front, {"color": ACCENT, "size": 9, "symbol": "diamond"}))
    drawing = figure(traces, _axis_title(second), _axis_title(first))
    return Chart("objectives", _pareto_caption(sweep), drawing, height=340)


def _places(trials: Iterable[TrialData]) -> dict[int, tuple[float, float]]:
    return {trial.index: (trial.objectives[1], trial.objectives[0]) for trial in trials}


def _axis_title(objective: Objective) -> str:
    return f"{objective.metric} ({'more' if objective.mode == 'max' else 'less'} is better)"


def _pareto_caption(sweep: SweepData) -> str:
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


MAX_CURVE_POINTS = 100_000
"""About how many points all curves may have together."""

_CURVE_POINTS = (60, 1000)  # of one curve, at least and at most
_TRACES = 24  # of a group: lines of one trace do not darken where they cross, others do

_MANY_CURVES = 100

_GROUPS = (
    ("finished", (TrialState.SUCCEEDED,)),
    ("ended early", (TrialState.STOPPED, TrialState.PRUNED)),
    ("failed", (TrialState.FAILED,)),
    ("not ended", (TrialState.RUNNING, TrialState.PAUSED, TrialState.PENDING)),
)
_END_MARKS = {"ended early": "circle-open", "failed": "x-thin-open", "not ended": "diamond-open"}


def learning_curves(sweep: SweepData) -> Chart | None:
    """Draw the score of every evaluation over environment steps; None without any."""
    drawn = [trial for trial in sweep.trials if trial.curve.evaluations]
    if not drawn:
        return None
    has_steps = any(step is not None for trial in drawn for step in trial.curve.steps)
    limit = min(max(MAX_CURVE_POINTS // len(drawn), _CURVE_POINTS[0]), _CURVE_POINTS[1])
    pen = _Pen(has_steps, limit)
    traces: list[Trace] = []
    groups: list[Group] = []

    def add(label: str, mark: str, more: Sequence[Trace]) -> None:
        groups.append(Group(label, mark, range(len(traces), len(traces) + len(more))))
        traces.extend(more)

    for label, states in _GROUPS:
        group = [trial for trial in drawn if trial.record.state in states]
        if group:
            add(f"{label} ({len(group)})", label.replace(" ", "-"), pen.group(label, group))
    if sweep.best is not None and sweep.best.curve.evaluations:
        add(f"best: {sweep.best.id}", "best", pen.best(sweep.best))
    x_title = "environment steps" if has_steps else "evaluation"
    drawing = figure(traces, x_title, sweep.record.metric)
    return Chart("curves", _curves_caption(sweep, drawn), drawing, height=420, groups=groups)


@dataclass(frozen=True)
class _Pen:
    """How trials are drawn: over steps or evaluations, with a maximum number of points each."""

    has_steps: bool
    limit: int

    def group(self, label: str, trials: Sequence[TrialData]) -> list[Trace]:
        """Return some traces with the lines of all these trials, and one with their ends."""
        style = {
            "line": {"color": QUIET, "width": 1.2 if len(trials) < _MANY_CURVES else 0.7},
            "opacity": 0.75 if len(trials) < _MANY_CURVES else 0.25,
        }
        lines = {trial.index: self._line(trial.curve.scores, trial) for trial in trials}
        own = list(lines.items())
        traces = [
            self._trace(dict(own[first::_TRACES]), mode="lines", **style)
            for first in range(min(_TRACES, len(own)))
        ]
        if label in _END_MARKS:
            size = 7 if len(trials) < _MANY_CURVES else 4
            mark = {"symbol": _END_MARKS[label], "color": MUTED, "size": size, "line": {"width": 1}}
            ends = {index: [_last(line)] for index, line in lines.items()}
            traces.append(self._trace(ends, mode="markers", marker=mark))
        return traces

    def best(self, trial: TrialData) -> list[Trace]:
        """Return thin lines for a trial's seeds, a thick one for its score, and a star."""
        thin = {"color": ACCENT, "width": 1}
        star = {"symbol": "star", "color": ACCENT, "size": 15, "line": {"color": PAPER, "width": 1}}
        line = self._line(trial.curve.scores, trial)
        seeds = [self._line(scores, trial) for scores in trial.curve.seeds.values()]
        return [
            *(scatter(seed, mode="lines", line=thin, opacity=0.45) for seed in seeds),
            self._trace({trial.index: line}, mode="lines", line={"color": ACCENT, "width": 2.5}),
            self._trace({trial.index: [self._best_point(trial)]}, mode="markers", marker=star),
        ]

    def _trace(self, points: Mapping[int, Sequence[Point]], **style: Any) -> Trace:
        where = "after %{x:,} steps" if self.has_steps else "at evaluation %{x}"
        hover = f"%{{text}}<br>%{{y:.5~g}} {where}<extra></extra>"
        return owned(points, hovertemplate=hover, **style)

    def _line(self, scores: Numbers, trial: TrialData) -> list[Point]:
        steps = trial.curve.steps if self.has_steps else range(1, len(scores) + 1)
        places = thinned(scores, self.limit)
        return [*((steps[place], _rounded(scores[place])) for place in places), GAP]

    def _best_point(self, trial: TrialData) -> Point:
        if self.has_steps:
            return trial.best_step, trial.score
        scores = trial.curve.scores
        return (scores.index(trial.score) + 1 if trial.score in scores else None), trial.score


def _rounded(score: float | None) -> float | None:
    return None if score is None else float(f"{score:.6g}")


def _last(line: Sequence[Point]) -> Point:
    return next((point for point in reversed(line) if None not in point), GAP)


def _curves_caption(sweep: SweepData, drawn: Sequence[TrialData]) -> str:
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
