"""What population-based schedulers may change of a running trial, and within what."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ray.tune.search.sample import Categorical

from ditk_ray.config.space import CREATE_PREFIX, Parameter, SearchSpace, is_grid
from ditk_ray.search.ranges import Range, read_range

_BOUND_TO_WEIGHTS = ("policy.model.", CREATE_PREFIX)
"""Where parameters stand that a trial cannot change while it keeps its weights."""


@dataclass(frozen=True)
class KeepInside:
    """Brings what a mutation made of the parameters back into their ranges.

    Tune multiplies by 1.2 or 0.8, whatever the bounds: a discount factor would pass 1.
    """

    ranges: Mapping[str, Range]

    def __call__(self, config: dict[str, Any]) -> dict[str, Any]:
        """Return the config that a trial goes on with."""
        inside = {
            name: found.rounded(config[name])
            for name, found in self.ranges.items()
            if name in config
        }
        return {**config, **inside}


def mutations(space: SearchSpace) -> dict[str, Any]:
    """Return what PBT may change: domains, and lists of choices to step through."""
    found: dict[str, Any] = {}
    for item in _changeable(space):
        if isinstance(item.domain, Categorical):
            found[item.name] = list(item.domain.categories)
        elif is_grid(item.domain):
            found[item.name] = list(item.domain["grid_search"])
        elif read_range(item.domain) is not None:
            found[item.name] = item.domain
    return found


def ranges(space: SearchSpace) -> dict[str, Range]:
    """Return the ranges of the numbers that may be changed, by name."""
    found = {item.name: read_range(item.domain) for item in _changeable(space)}
    return {name: given for name, given in found.items() if given is not None}


def _changeable(space: SearchSpace) -> list[Parameter]:
    return [
        item
        for item in space.parameters
        if item.is_sampled and not item.name.startswith(_BOUND_TO_WEIGHTS)
    ]
