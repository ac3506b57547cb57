"""The Pareto set: the trials that no other trial beats in every objective."""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Real
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ditk_ray.tracking.record import SweepRecord, TrialRecord

Point = tuple[float, ...]
"""A trial's objectives, each with the sign by which less is better."""


def pareto_set(record: SweepRecord) -> list[TrialRecord]:
    """Return the trials that are not dominated, the best by the first objective first.

    A trial counts by its best evaluation by the first objective, with all objectives as they
    were at that evaluation (`best_metrics`). Of trials with the same values all are kept;
    those without a finite value for each objective are left out. With one objective these
    are the best trials.
    """
    found = [
        (point, trial)
        for trial in record.trials.values()
        if (point := _point(record, trial)) is not None
    ]
    kept = non_dominated([point for point, _ in found])
    return [found[place][1] for place in kept]


def non_dominated(points: Sequence[Point]) -> list[int]:
    """Return the places of the points that no other point dominates, in order of the points.

    One dominates another if it is nowhere greater, and somewhere less.
    """
    if not points:
        return []
    order = sorted(range(len(points)), key=lambda place: points[place])
    # A point is only dominated by such that come before it in this order.
    if len(points[0]) <= 2:
        return _of_two(points, order)
    return _of_many(points, order)


def _of_two(points: Sequence[Point], order: Sequence[int]) -> list[int]:
    """Go along the first objective: what follows has to be better in the last one."""
    kept: list[int] = []
    for place in order:
        point = points[place]
        if not kept or point[-1] < points[kept[-1]][-1] or point == points[kept[-1]]:
            kept.append(place)
    return kept


def _of_many(points: Sequence[Point], order: Sequence[int]) -> list[int]:
    import numpy as np  # not for those who only read a record

    kept: list[int] = []
    values = np.array(points)
    front = np.empty_like(values)
    for place in order:
        known = front[: len(kept)]
        point = values[place]
        if not ((known <= point).all(axis=1) & (known < point).any(axis=1)).any():
            front[len(kept)] = point
            kept.append(place)
    return kept


def _point(record: SweepRecord, trial: TrialRecord) -> Point | None:
    point = []
    for objective in record.objectives:
        value = trial.best_metrics.get(objective.metric)
        if not isinstance(value, Real) or not math.isfinite(value):
            return None
        point.append(float(-value if objective.mode == "max" else value))
    return tuple(point)
