"""A space as model-based searchers can take it, and their suggestions turned back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ray import tune
from ray.tune.search.sample import Categorical, Function

from ditk_ray.config.space import Parameter, SearchSpace, is_grid
from ditk_ray.errors import Problem
from ditk_ray.search.ranges import read_range


@dataclass(frozen=True)
class SpaceCodec:
    """Translates between a space and what the searchers' packages have in common.

    They know ranges of numbers and choices among plain values. So a choice among lists or
    dicts is given to them by the values' texts, a step is left out and rounded to afterwards,
    and what has only one value is not given to them at all.
    """

    parameters: tuple[Parameter, ...]

    @classmethod
    def of(cls, space: SearchSpace) -> SpaceCodec:
        """Return the codec for what varies in a space."""
        return cls(tuple(item for item in space.parameters if item.is_sampled))

    def problems(self, searcher: str) -> Iterator[Problem]:
        """Yield why a searcher that makes a model cannot take the space."""
        for item in self.parameters:
            reason = _refusal(item.domain)
            if reason is not None:
                hint = f"{reason[1]}, or use the searcher 'random'"
                yield Problem(item.name, f"searcher {searcher!r} cannot take {reason[0]}", hint)
        if not any(_refusal(item.domain) or self._varies(item) for item in self.parameters):
            yield Problem("space", f"searcher {searcher!r} has nothing to search: nothing varies")

    def domains(self) -> dict[str, Any]:
        """Return the domains to hand to a searcher, by name."""
        return {item.name: _handed(item.domain) for item in self.parameters if self._varies(item)}

    def encoded(self, point: Mapping[str, Any]) -> dict[str, Any]:
        """Return a point of the space as a searcher would suggest it."""
        return {
            item.name: _label(point[item.name]) if _is_labelled(item.domain) else point[item.name]
            for item in self.parameters
            if self._varies(item)
        }

    def decoded(self, suggested: Mapping[str, Any]) -> dict[str, Any]:
        """Return a searcher's suggestion as a point of the space."""
        return {
            item.name: _value(item.domain, suggested[item.name])
            if item.name in suggested
            else _only_value(item.domain)
            for item in self.parameters
        }

    def _varies(self, item: Parameter) -> bool:
        found = read_range(item.domain)
        if found is not None:
            return found.lower < found.upper
        return len(item.domain.categories) > 1


def _refusal(domain: Any) -> tuple[str, str] | None:
    """Return what a domain is that no model is made of, and what to write instead."""
    if is_grid(domain):
        return "a grid_search", "write tune.choice"
    if isinstance(domain, Function):
        return "a sample_from", "write a domain"
    if isinstance(domain, Categorical) or read_range(domain) is not None:
        return None
    return "a distribution without bounds", "write tune.uniform or tune.loguniform"


def _handed(domain: Any) -> Any:
    if isinstance(domain, Categorical):
        values = domain.categories
        return tune.choice([_label(value) for value in values] if _is_labelled(domain) else values)
    found = read_range(domain)
    assert found is not None
    return found.domain()


def _value(domain: Any, suggested: Any) -> Any:
    if isinstance(domain, Categorical):
        # By comparison, not as it came: some packages make numpy's numbers of them.
        return next(
            value
            for value in domain.categories
            if (_label(value) if _is_labelled(domain) else value) == suggested
        )
    found = read_range(domain)
    assert found is not None
    return found.rounded(suggested)


def _only_value(domain: Any) -> Any:
    if isinstance(domain, Categorical):
        return domain.categories[0]
    found = read_range(domain)
    assert found is not None
    return found.rounded(found.lower)


def _is_labelled(domain: Any) -> bool:
    """Say whether a choice's values are too rich, or too mixed, to be handed on as they are."""
    if not isinstance(domain, Categorical):
        return False
    kinds = {type(value) for value in domain.categories}
    return len(kinds) > 1 or not kinds <= {int, float, str}


def _label(value: Any) -> str:
    return repr(value)
