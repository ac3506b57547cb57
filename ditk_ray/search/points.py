"""Points of a space that are known beforehand: checked, completed, run first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from ray.tune.search.sample import Categorical, Domain, Function

from ditk_ray.config.nearest import did_you_mean
from ditk_ray.config.space import Parameter, SearchSpace, is_grid
from ditk_ray.errors import BadConfigError, Problem
from ditk_ray.search.ranges import read_range

Point = dict[str, Any]


def read_points(given: Sequence[Any], space: SearchSpace) -> list[Point]:
    """Return the points by the space's flat names; they may be nested as the space is.

    A point may leave parameters out. Raises a `BadConfigError` that lists every name that is
    no parameter and every value that the parameter cannot have.
    """
    sampled = {item.name: item for item in space.parameters if item.is_sampled}
    points: list[Point] = []
    problems: list[Problem] = []
    for index, point in enumerate(given):
        where = f"known_points[{index}]"
        if not isinstance(point, Mapping):
            problems.append(Problem(where, f"is {point!r}; it has to be a dict"))
            continue
        flat = dict(_flat(point, sampled))
        points.append(flat)
        problems += _mistakes(where, flat, space, sampled)
    if problems:
        raise BadConfigError(problems)
    return points


def refusal(parameter: Parameter, value: Any) -> str | None:
    """Say why a parameter cannot have a value, or return None."""
    domain = parameter.domain
    if is_grid(domain):
        return None if value in domain["grid_search"] else _not_in(value, domain["grid_search"])
    if isinstance(domain, Categorical):
        return None if value in domain.categories else _not_in(value, domain.categories)
    found = read_range(domain)
    return found.refusal(value) if found is not None else None


def completed(points: Sequence[Point], space: SearchSpace, seed: int | None) -> list[Point]:
    """Return the points with a draw for every parameter that they leave out.

    Only for spaces without `grid_search` and `sample_from`.
    """
    random = np.random.RandomState(seed)
    domains = {item.name: item.domain for item in space.parameters if item.is_sampled}
    return [
        {
            name: point[name] if name in point else domain.sample(random_state=random)
            for name, domain in domains.items()
            if isinstance(domain, Domain) and not isinstance(domain, Function)
        }
        for point in points
    ]


def _flat(
    tree: Mapping[str, Any], sampled: Mapping[str, Parameter], prefix: str = ""
) -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        name = prefix + str(key).removeprefix("+")
        if isinstance(value, Mapping) and name not in sampled:  # a choice may be of dicts
            yield from _flat(value, sampled, f"{name}.")
        else:
            yield name, value


def _mistakes(
    where: str, flat: Point, space: SearchSpace, sampled: Mapping[str, Parameter]
) -> Iterator[Problem]:
    fixed = {item.name for item in space.parameters if not item.is_sampled}
    for name, value in flat.items():
        if name in fixed:
            yield Problem(f"{where}.{name}", "is the same in every trial", "leave it out")
        elif name not in sampled:
            what = "is no parameter of the space"
            yield Problem(f"{where}.{name}", what, did_you_mean(name, sampled))
        elif reason := refusal(sampled[name], value):
            yield Problem(f"{where}.{name}", reason)


def _not_in(value: Any, choices: Sequence[Any]) -> str:
    return f"{value!r} is none of {list(choices)!r}"
