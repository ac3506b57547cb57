"""Search spaces: what may vary, written in the shape of the config it varies.

A space is a nested dict of the config's shape, or uses dotted keys, or both.
Its leaves are Ray Tune's domains, `grid_search`, or plain values that are set
in every trial. Two things go beyond Tune:

- `when(path, value, domain)` is a parameter that exists only while another one
  has a certain value;
- a key that starts with `+` is new on purpose and is not looked up in the config.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

from ray.tune.search.sample import Domain, Function
from ray.tune.search.variant_generator import RecursiveDependencyError

from ditk_ray.errors import BadConfigError, Problem

CREATE_PREFIX = "create_config."


@dataclass(frozen=True)
class Conditional:
    """A domain that counts only while the parameter `parent` fits `wanted`."""

    parent: str
    wanted: Any
    domain: Any

    def holds(self, value: Any) -> bool:
        """Say whether `value` of the parent lets this parameter exist."""
        if callable(self.wanted):
            return bool(self.wanted(value))
        if isinstance(self.wanted, (list, tuple, set, frozenset)):
            return value in self.wanted
        return bool(value == self.wanted)


def when(parent: str, wanted: Any, domain: Any) -> Conditional:
    """Make a parameter that exists only while `parent` is `wanted`.

    `parent` is the dotted path of another parameter of the space. `wanted` is a
    value, a list of values, or a function of the value that says yes or no.
    """
    return Conditional(parent, wanted, domain)


@dataclass(frozen=True)
class Parameter:
    """One entry of a space.

    `name` is what searchers, tables and MLflow call it: the dotted path, with
    `create_config.` before it for a path of `create_config`. `domain` is a Tune
    domain, a `{"grid_search": [...]}` dict, or a plain value.
    """

    name: str
    domain: Any
    is_new: bool = False
    conditions: tuple[Conditional, ...] = ()

    @property
    def is_sampled(self) -> bool:
        """Whether Tune draws it, as opposed to a plain value."""
        return is_domain(self.domain)


@dataclass(frozen=True)
class Sample:
    """The values of one trial, split by the dict that they are laid on."""

    main: dict[str, Any]
    create: dict[str, Any]


@dataclass(frozen=True)
class SearchSpace:
    """All parameters of a sweep, in the order they were written."""

    parameters: tuple[Parameter, ...]

    def tune_space(self) -> dict[str, Any]:
        """Return the flat `param_space` that Ray Tune samples from."""
        fixed = {item.name: item.domain for item in self.parameters if not item.is_sampled}
        return {
            item.name: _for_tune(item.domain, fixed) for item in self.parameters if item.is_sampled
        }

    def active(self, drawn: Mapping[str, Any]) -> dict[str, Any]:
        """Return the drawn values without those whose condition does not hold."""
        exists = self._existing(drawn)
        return {name: value for name, value in drawn.items() if name in exists}

    def sample(self, drawn: Mapping[str, Any]) -> Sample:
        """Turn what Tune drew into values to lay on the config."""
        exists = self._existing(drawn)
        result = Sample({}, {})
        for item in self.parameters:
            if item.name in exists:
                value = drawn[item.name] if item.is_sampled else item.domain
                path = item.name.removeprefix(CREATE_PREFIX)
                (result.main if path == item.name else result.create)[path] = value
        return result

    def _existing(self, drawn: Mapping[str, Any]) -> set[str]:
        """Return the names of the parameters whose conditions hold, parents first."""
        by_name = {item.name: item for item in self.parameters}
        values = {item.name: drawn.get(item.name, item.domain) for item in self.parameters}

        def exists(item: Parameter) -> bool:
            return all(
                exists(by_name[condition.parent]) and condition.holds(values[condition.parent])
                for condition in item.conditions
            )

        return {item.name for item in self.parameters if exists(item)}


def is_domain(value: Any) -> bool:
    """Say whether Tune draws `value` rather than passing it on."""
    return isinstance(value, Domain) or is_grid(value)


def is_grid(value: Any) -> bool:
    """Say whether `value` is what `tune.grid_search` returns."""
    return isinstance(value, dict) and set(value) == {"grid_search"}


def count_trials(space: SearchSpace, num_samples: int) -> int:
    """Return how many trials there are of a space: its grids' points, `num_samples` times."""
    grids = [item.domain for item in space.parameters if is_grid(item.domain)]
    return num_samples * prod(len(domain["grid_search"]) for domain in grids)


def build_space(
    space: Mapping[str, Any],
    create_space: Mapping[str, Any] | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> SearchSpace:
    """Flatten what the user wrote into a `SearchSpace`.

    `overrides` are plain values by name that win over the space, such as those
    of `--set`. Raises `BadConfigError` for a path that is given twice and for a
    condition that names no parameter.
    """
    found = [*_walk(space, ""), *_walk(create_space or {}, CREATE_PREFIX)]
    fixed = [name.removeprefix("+") for name in overrides or {}]
    parameters = [item for item in found if not _covered(item.name, fixed)]
    parameters += [
        Parameter(name.removeprefix("+"), value, name.startswith("+"))
        for name, value in (overrides or {}).items()
    ]
    problems = [*_twice(parameters), *_bad_conditions(parameters)]
    if problems:
        raise BadConfigError(problems)
    return SearchSpace(tuple(parameters))


def _covered(name: str, fixed: list[str]) -> bool:
    return any(name == path or name.startswith(path + ".") for path in fixed)


def _walk(
    node: Any, prefix: str, is_new: bool = False, conditions: tuple[Conditional, ...] = ()
) -> Iterator[Parameter]:
    """Yield the parameters below `node`; `prefix` ends with a dot unless it is empty."""
    if isinstance(node, Mapping) and not is_grid(node) and (node or not prefix):
        for key, item in node.items():
            new = is_new or str(key).startswith("+")
            yield from _walk(item, f"{prefix}{str(key).removeprefix('+')}.", new, conditions)
    elif isinstance(node, Conditional):
        yield from _walk(node.domain, prefix, is_new, (*conditions, node))
    elif isinstance(node, (list, tuple)) and _holds_domain(node):
        # The list is set whole first, then the drawn items are put into it.
        yield Parameter(prefix[:-1], [_skeleton(item) for item in node], is_new, conditions)
        for index, item in enumerate(node):
            if _holds_domain(item):
                yield from _walk(item, f"{prefix}{index}.", True, conditions)
    elif prefix not in ("", CREATE_PREFIX):
        yield Parameter(prefix[:-1], node, is_new, conditions)


def _holds_domain(node: Any) -> bool:
    if is_domain(node) or isinstance(node, Conditional):
        return True
    if isinstance(node, Mapping):
        return any(_holds_domain(item) for item in node.values())
    return isinstance(node, (list, tuple)) and any(_holds_domain(item) for item in node)


def _skeleton(node: Any) -> Any:
    if is_domain(node) or isinstance(node, Conditional):
        return None
    if isinstance(node, Mapping):
        return {key: _skeleton(item) for key, item in node.items() if not _holds_domain(item)}
    if isinstance(node, (list, tuple)):
        return [_skeleton(item) for item in node]
    return node


def _twice(parameters: list[Parameter]) -> Iterator[Problem]:
    seen: set[str] = set()
    for item in parameters:
        if item.name in seen:
            yield Problem(item.name, "stands twice in the space", "keep one of them")
        seen.add(item.name)


def _bad_conditions(parameters: list[Parameter]) -> Iterator[Problem]:
    parents = {item.name: [one.parent for one in item.conditions] for item in parameters}
    for item in parameters:
        for parent in parents[item.name]:
            if parent not in parents or parent == item.name:
                yield Problem(
                    item.name,
                    f"depends on {parent!r}, which is no other parameter of the space",
                    "the first argument of when() is the dotted path of another parameter",
                )
            elif item.name in _ancestors(parent, parents):
                yield Problem(item.name, f"depends on {parent!r}, which depends on it in turn")
        if item.conditions and is_grid(item.domain):
            yield Problem(
                item.name,
                "grid_search inside when() would run the same trial several times",
                "use tune.choice, or a grid_search over whole dicts",
            )


def _ancestors(name: str, parents: Mapping[str, list[str]]) -> set[str]:
    found: set[str] = set()
    waiting = list(parents.get(name, ()))
    while waiting:
        parent = waiting.pop()
        if parent not in found:
            found.add(parent)
            waiting += parents.get(parent, ())
    return found


def _for_tune(domain: Any, fixed: Mapping[str, Any]) -> Any:
    if isinstance(domain, Function) and domain.pass_config:
        return Function(_NestedArgument(domain.func, fixed))
    return domain


@dataclass(frozen=True)
class _NestedArgument:
    """Calls a `sample_from` function with a view that has the config's own shape."""

    function: Callable[[Any], Any]
    fixed: Mapping[str, Any]

    def __call__(self, config: Mapping[str, Any]) -> Any:
        # Tune's own generator passes the whole experiment, whose `config` is ours, and
        # wraps it once more after a KeyError or AttributeError.
        while isinstance(config.get("config"), Mapping):
            config = config["config"]
        return self.function(DrawnValues({**self.fixed, **config}))


class DrawnValues:
    """The values drawn so far, reachable as in the config or by dotted path.

    `c["policy"]["learn"]["batch_size"]`, `c.policy.learn.batch_size` and
    `c["policy.learn.batch_size"]` are the same. A value that is not drawn yet
    makes Tune try again after it is.
    """

    def __init__(self, flat: Mapping[str, Any], prefix: str = "") -> None:
        self._flat = flat
        self._prefix = prefix

    def __getitem__(self, key: str) -> Any:
        path = f"{self._prefix}{key}"
        if path in self._flat:
            value = self._flat[path]
            if is_domain(value):
                raise RecursiveDependencyError(f"{path} is not drawn yet")
            return value
        if any(name.startswith(path + ".") for name in self._flat):
            return DrawnValues(self._flat, path + ".")
        raise LookupError(f"sample_from asks for {path!r}, which is no parameter of the space")

    def __getattr__(self, key: str) -> Any:
        if key.startswith("__"):
            raise AttributeError(key)
        return self[key]
