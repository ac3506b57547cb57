"""Turning a space into a grid: every parameter at a few values, all of them combined."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from statistics import NormalDist
from typing import Any

from ray import tune
from ray.tune.search.sample import Categorical, Float, Normal, Quantized

from ditk_ray.config.space import Parameter, SearchSpace, is_grid
from ditk_ray.errors import BadConfigError, Problem
from ditk_ray.search.ranges import read_range

POINTS_PER_RANGE = 3


def grid_space(space: SearchSpace, points_per_range: int = POINTS_PER_RANGE) -> SearchSpace:
    """Return the space with a `grid_search` in place of every domain.

    A choice keeps all its values. A range becomes so many points from end to end, evenly on
    its own scale; a normal distribution as many equally likely ones. A `sample_from` stays:
    it follows the values of the others. Raises `BadConfigError` for conditional parameters.
    """
    if points_per_range < 1:
        problem = Problem("searcher_options.points_per_range", "has to be 1 or more")
        raise BadConfigError(problem)
    problems = [
        Problem(
            item.name,
            "depends on another parameter: a grid would run the same trial several times",
            "use the searcher 'random' or 'tpe', or fix the parameter with --set",
        )
        for item in space.parameters
        if item.is_sampled and item.conditions
    ]
    if problems:
        raise BadConfigError(problems)
    return SearchSpace(tuple(_gridded(item, points_per_range) for item in space.parameters))


def count_added(space: SearchSpace, points: Sequence[Mapping[str, Any]]) -> int:
    """Return how many trials known points add to those of a space with grids.

    A grid is gone through whole besides them, and so is what a point leaves open of it. Where
    there is no grid, points are among the samples.
    """
    grids = {item.name: item.domain for item in space.parameters if is_grid(item.domain)}
    if not grids:
        return 0
    return sum(
        prod(len(grid["grid_search"]) for name, grid in grids.items() if name not in point)
        for point in points
    )


def _gridded(parameter: Parameter, count: int) -> Parameter:
    values = _values(parameter.domain, count)
    if values is None:
        return parameter
    return replace(parameter, domain=tune.grid_search(values))


def _values(domain: Any, count: int) -> list[Any] | None:
    if is_grid(domain):
        return None
    if isinstance(domain, Categorical):
        return list(domain.categories)
    found = read_range(domain)
    if found is not None:
        return found.spread(count)
    return _normal_values(domain, count) if isinstance(domain, Float) else None


def _normal_values(domain: Any, count: int) -> list[float] | None:
    sampler, step = domain.get_sampler(), None
    if isinstance(sampler, Quantized):
        step, sampler = sampler.q, sampler.get_sampler()
    if not isinstance(sampler, Normal):
        return None
    law = NormalDist(sampler.mean, sampler.sd)
    values = [law.inv_cdf((index + 0.5) / count) for index in range(count)]
    rounded = [round(value / step) * step if step else value for value in values]
    return list(dict.fromkeys(rounded))
