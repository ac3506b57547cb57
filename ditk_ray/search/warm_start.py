"""Starting from what an earlier sweep has found."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

from ditk_ray.config.space import SearchSpace
from ditk_ray.search.model_searcher import ModelSearcher
from ditk_ray.search.points import Point, completed, refusal

RUN_AGAIN = 3
"""How many of the best are run first by a searcher that cannot be told of them."""

_GOOD = ("succeeded", "stopped")


@dataclass(frozen=True)
class EvaluatedPoint:
    """The parameters of a trial and the values of its objectives."""

    params: Point
    values: tuple[float, ...]


def evaluated_points(
    rows: Iterable[Mapping[str, Any]], objectives: Sequence[tuple[str, str]]
) -> list[EvaluatedPoint]:
    """Return what the trials of a record say, as they stand in `sweep.json`.

    A trial counts by its best evaluation, as in the summary. One that failed, has not
    ended, or had its parameters changed on the way says nothing.
    """
    found = []
    for row in rows:
        metrics = row.get("best_metrics") or {}
        values = [metrics.get(name) for name, _ in objectives]
        if row.get("state") in _GOOD and not row.get("changes") and all(map(_is_number, values)):
            numbers = tuple(float(value) for value in values if value is not None)
            found.append(EvaluatedPoint(dict(row["params"]), numbers))
    return found


def fitting_points(
    points: Sequence[EvaluatedPoint], space: SearchSpace, seed: int | None = None
) -> list[EvaluatedPoint]:
    """Return those points that lie in the space.

    They have a value that is allowed for each parameter, and for no other; conditional
    parameters that did not exist in a trial are drawn.
    """
    fitting = [point for point in points if _fits(point.params, space)]
    whole = completed([point.params for point in fitting], space, seed)
    return [
        EvaluatedPoint(params, point.values) for params, point in zip(whole, fitting, strict=True)
    ]


def teach(
    searcher: ModelSearcher | None,
    points: Sequence[EvaluatedPoint],
    objectives: Sequence[tuple[str, str]],
) -> list[Point]:
    """Tell a searcher of earlier evaluations; return what is to be run first instead.

    That is nothing where the searcher can be told, and else the best few points, by the
    first objective.
    """
    if searcher is not None and searcher.can_learn:
        for point in points:
            searcher.learn(point.params, point.values)
        return []
    sign = -1 if objectives[0][1] == "max" else 1
    best = sorted(points, key=lambda point: sign * point.values[0])
    return [point.params for point in best[:RUN_AGAIN]]


def _fits(params: Point, space: SearchSpace) -> bool:
    sampled = {item.name: item for item in space.parameters if item.is_sampled}
    needed = {name for name, item in sampled.items() if not item.conditions}
    return needed <= set(params) <= set(sampled) and not any(
        refusal(sampled[name], value) for name, value in params.items()
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and math.isfinite(value)
