"""Points of a space: what each parameter can be, points that are known beforehand, and grids."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Integral, Real
from statistics import NormalDist
from typing import Any

import numpy as np
from ray import tune
from ray.tune.search.sample import Domain, Float, Function, Integer

from ditk_ray.config.space import Parameter, SearchSpace, describe_domain, is_grid
from ditk_ray.errors import BadConfigError, Problem
from ditk_ray.util.suggest import did_you_mean

Point = dict[str, Any]
Number = int | float


@dataclass(frozen=True)
class Range:
    """All numbers from `lower` to `upper`, both included; with a `step`, its multiples."""

    lower: Number
    upper: Number
    is_int: bool
    is_log: bool
    step: Number | None = None

    @property
    def ends(self) -> tuple[Number, ...]:
        """The outermost members; a single one if nothing varies."""
        return (self.lower, self.upper) if self.lower < self.upper else (self.decoded(self.lower),)

    def decoded(self, value: Number) -> Number:
        """Return the member that is nearest to `value`, as an int or float of Python's own."""
        if self.step is not None:
            value = round(value / self.step) * self.step
        value = min(max(value, self.lower), self.upper)
        return round(value) if self.is_int else float(value)

    def encoded(self, value: Number) -> Number:
        return value

    def refusal(self, value: Any) -> str | None:
        if isinstance(value, bool) or not isinstance(value, Integral if self.is_int else Real):
            return f"{value!r} is not a {'whole ' if self.is_int else ''}number"
        number = float(value)
        if not self.lower <= number <= self.upper:
            return f"{value!r} lies outside {self.lower:g} to {self.upper:g}"
        if self.step and not math.isclose(self.decoded(number), number, rel_tol=1e-6):
            return f"{value!r} is not a multiple of {self.step:g}"
        return None

    def spread(self, count: int) -> list[Number]:
        """Return up to `count` members that are spread evenly, each only once."""
        low, high = (math.log(v) if self.is_log else v for v in (self.lower, self.upper))
        shares = [index / (count - 1) for index in range(count)] if count > 1 else [0.5]
        places = [low + share * (high - low) for share in shares]
        values = [self.decoded(math.exp(place) if self.is_log else place) for place in places]
        return list(dict.fromkeys(values))

    def domain(self) -> Any:
        """Return Tune's domain of it without the step, which not every searcher knows."""
        if self.is_int:
            whole = Integer(int(self.lower), int(self.upper) + 1)
            return whole.loguniform() if self.is_log else whole.uniform()
        floats = Float(float(self.lower), float(self.upper))
        return floats.loguniform() if self.is_log else floats.uniform()


@dataclass(frozen=True)
class Choice:
    """One of some values; lists, dicts and mixed values are given to searchers by their texts."""

    ends: tuple[Any, ...]

    def decoded(self, label: Any) -> Any:
        # Looked up, not taken as it came: some packages make numpy's numbers of them.
        return self._by_label()[label]

    def encoded(self, value: Any) -> Any:
        return next(label for label, known in self._by_label().items() if known == value)

    def refusal(self, value: Any) -> str | None:
        return None if value in self.ends else f"{value!r} is not one of {list(self.ends)!r}"

    def spread(self, count: int) -> list[Any]:
        return list(self.ends)

    def domain(self) -> Any:
        return tune.choice(list(self._by_label()))

    def _by_label(self) -> dict[Any, Any]:
        kinds = {type(value) for value in self.ends}
        is_plain = len(kinds) == 1 and kinds <= {int, float, str}
        return {value if is_plain else repr(value): value for value in self.ends}


def read_domain(domain: Any) -> Range | Choice | None:
    """Return what a parameter can be; None for functions, plain values and what has no bounds."""
    described = describe_domain(domain)
    if "choices" in described:
        return Choice(tuple(described["choices"]))
    if "lower" not in described or not math.isfinite(described["upper"] - described["lower"]):
        return None
    lower, upper, step = described["lower"], described["upper"], described.get("step")
    is_int, is_log = described["kind"] == "int", described["log"]
    if is_int and step in (None, 1):
        # Tune leaves the upper bound out, unless there is a step.
        return Range(lower, upper - 1, is_int, is_log)
    if step is not None:
        lower = math.ceil(lower / step - 1e-9) * step
        upper = math.floor(upper / step + 1e-9) * step
    return Range(lower, upper, is_int, is_log, step)


def refusal(parameter: Parameter, value: Any) -> str | None:
    known = read_domain(parameter.domain)
    return known.refusal(value) if known is not None else None


def read_points(given: Sequence[Any], space: SearchSpace) -> list[Point]:
    """Return the points by the space's flat names; they may be nested as the space is.

    A point may leave parameters out. Raises a `BadConfigError` that lists every name that is
    not a parameter and every value that the parameter cannot have.
    """
    known = {item.name: item for item in space.parameters}
    points: list[Point] = []
    problems: list[Problem] = []
    for index, point in enumerate(given):
        where = f"known_points[{index}]"
        if not isinstance(point, Mapping):
            problems.append(Problem(where, f"is {point!r}; it has to be a dict"))
            continue
        points.append(dict(_flat(point, known)))
        problems += _mistakes(where, points[-1], known)
    if problems:
        raise BadConfigError(problems)
    return points


def completed(points: Sequence[Point], space: SearchSpace, seed: int | None) -> list[Point]:
    """Return the points with a draw for every parameter that they leave out.

    Only for spaces without `grid_search` and `sample_from`.
    """
    random = np.random.RandomState(seed)
    domains = {item.name: item.domain for item in space.parameters}
    return [
        {
            name: point[name] if name in point else domain.sample(random_state=random)
            for name, domain in domains.items()
            if isinstance(domain, Domain) and not isinstance(domain, Function)
        }
        for point in points
    ]


def _flat(
    tree: Mapping[str, Any], known: Mapping[str, Parameter], prefix: str = ""
) -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        name = prefix + str(key).removeprefix("+")
        if isinstance(value, Mapping) and name not in known:  # a choice may be of dicts
            yield from _flat(value, known, f"{name}.")
        else:
            yield name, value


def _mistakes(where: str, flat: Point, known: Mapping[str, Parameter]) -> Iterator[Problem]:
    sampled = [name for name, item in known.items() if item.is_sampled]
    for name, value in flat.items():
        if name not in known:
            what = "is not a parameter of the space"
            yield Problem(f"{where}.{name}", what, did_you_mean(name, sampled))
        elif name not in sampled:
            yield Problem(f"{where}.{name}", "is the same in every trial", "leave it out")
        elif reason := refusal(known[name], value):
            yield Problem(f"{where}.{name}", reason)


def grid_space(space: SearchSpace, points_per_range: int = 3) -> SearchSpace:
    """Return the space with a `grid_search` in place of every domain.

    A choice keeps all its values. A range becomes that many points from end to end, evenly on
    its own scale; a normal distribution as many equally likely ones. A `sample_from` stays:
    it follows the values of the others. Raises `BadConfigError` for conditional parameters.
    """
    what = "depends on another parameter: a grid would run the same trial several times"
    hint = "use the searcher 'random' or 'tpe', or fix the parameter with --set"
    conditional = [item.name for item in space.parameters if item.is_sampled and item.conditions]
    problems = [Problem(name, what, hint) for name in conditional]
    if points_per_range < 1:
        problems.append(Problem("searcher_options.points_per_range", "has to be 1 or more"))
    if problems:
        raise BadConfigError(problems)
    return SearchSpace(tuple(_gridded(item, points_per_range) for item in space.parameters))


def count_trials(space: SearchSpace, num_samples: int, points: Sequence[Point] = ()) -> int:
    """Return how many trials there are of a space: its grids' points, `num_samples` times.

    A grid is run in full besides known points, and so is what a point leaves open of it.
    Where there is no grid, points are among the samples.
    """
    grids = {item.name: item.domain for item in space.parameters if is_grid(item.domain)}
    given = [*[{}] * num_samples, *(points if grids else ())]
    return sum(
        math.prod(len(grid["grid_search"]) for name, grid in grids.items() if name not in point)
        for point in given
    )


def _gridded(parameter: Parameter, count: int) -> Parameter:
    domain = parameter.domain
    if (known := read_domain(domain)) is not None:
        return replace(parameter, domain=tune.grid_search(known.spread(count)))
    described = describe_domain(domain)
    if "mean" not in described:
        return parameter
    law, step = NormalDist(described["mean"], described["sd"]), described.get("step")
    values = [law.inv_cdf((index + 0.5) / count) for index in range(count)]
    rounded = [round(value / step) * step if step else value for value in values]
    return replace(parameter, domain=tune.grid_search(list(dict.fromkeys(rounded))))
