"""What a chart of scores over a parameter shows, in a sentence."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import StatisticsError, correlation, fmean, median

from ditk_ray.report.values import show

CLEAR = 0.3
"""From which rank correlation on a trend is worth a word."""

TELLING = 0.2
"""From which share of the ranks' variance on a part of an axis is worth a word."""

_MIN_TREND = 5
_PARTS = 5
_MIN_PARTS = 6 * _PARTS


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
    """Say which part of the axis is best, if the parts tell the scores apart."""
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
    """Return the share of the ranks' variance that lies between the parts, beyond chance."""
    mean = fmean(ranks)
    total = sum((rank - mean) ** 2 for rank in ranks)
    if not total:
        return 0.0
    between = sum(len(part) * (fmean(ranks[i] for i in part) - mean) ** 2 for part in parts)
    return 1 - (1 - between / total) * (len(ranks) - 1) / (len(ranks) - len(parts))


def _ranks(values: Sequence[float]) -> list[float]:
    """Return the rank of each value; equal ones share the mean of theirs."""
    ordered = sorted(values)
    first: dict[float, int] = {}
    for place, value in enumerate(ordered):
        first.setdefault(value, place)
    last = {value: place for place, value in enumerate(ordered)}
    return [(first[value] + last[value]) / 2 for value in values]
