"""Search spaces: what may vary, written in the shape of the config it varies.

A space is a nested dict of the config's shape, or uses dotted keys, or both.
Its leaves are Ray Tune's domains, `grid_search`, or plain values that are set
in every trial. Two things go beyond Tune:

- `when(path, value, domain)` is a parameter that exists only while another one
  has a certain value;
- a key that starts with `+` is new on purpose and is not looked up in the config.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from graphlib import CycleError, TopologicalSorter
from typing import Any

from ray.tune.search.sample import (
    Categorical,
    Domain,
    Float,
    Function,
    Integer,
    LogUniform,
    Normal,
    Quantized,
)
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
class SearchSpace:
    """All parameters of a sweep, in the order they were written."""

    parameters: tuple[Parameter, ...]

    def tune_space(self) -> dict[str, Any]:
        """Return the flat `param_space` that Ray Tune samples from."""
        fixed = {item.name: item.domain for item in self.parameters if not item.is_sampled}
        drawn = {item.name: item.domain for item in self.parameters if item.is_sampled}
        for name, domain in drawn.items():
            if isinstance(domain, Function) and domain.pass_config:
                drawn[name] = Function(partial(_call_nested, domain.func, fixed))
        return drawn

    def active(self, drawn: Mapping[str, Any]) -> dict[str, Any]:
        """Return the drawn values without those whose condition does not hold."""
        exists = self._existing(drawn)
        return {name: value for name, value in drawn.items() if name in exists}

    def sample(self, drawn: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Turn what Tune drew into values to lay on `main_config` and on `create_config`."""
        exists = self._existing(drawn)
        main: dict[str, Any] = {}
        create: dict[str, Any] = {}
        for item in self.parameters:
            if item.name in exists:
                value = drawn[item.name] if item.is_sampled else item.domain
                path = item.name.removeprefix(CREATE_PREFIX)
                (main if path == item.name else create)[path] = value
        return main, create

    def _existing(self, drawn: Mapping[str, Any]) -> set[str]:
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
    return isinstance(value, dict) and set(value) == {"grid_search"}


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
    fixed = [
        Parameter(name.removeprefix("+"), value, name.startswith("+"))
        for name, value in (overrides or {}).items()
    ]
    covered = tuple(f"{item.name}." for item in fixed)
    parameters = [item for item in found if not f"{item.name}.".startswith(covered)] + fixed
    problems = [
        Problem(name, "is defined twice in the space", "keep one of them")
        for name, count in Counter(item.name for item in parameters).items()
        if count > 1
    ]
    problems += _bad_conditions(parameters)
    if problems:
        raise BadConfigError(problems)
    return SearchSpace(tuple(parameters))


def _walk(
    node: Any, prefix: str, is_new: bool = False, conditions: tuple[Conditional, ...] = ()
) -> Iterator[Parameter]:
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


def _bad_conditions(parameters: list[Parameter]) -> Iterator[Problem]:
    parents = {item.name: [one.parent for one in item.conditions] for item in parameters}
    for item in parameters:
        for parent in parents[item.name]:
            if parent not in parents:
                what = f"depends on {parent!r}, which is not another parameter of the space"
                hint = "the first argument of when() is the dotted path of another parameter"
                yield Problem(item.name, what, hint)
        if item.conditions and is_grid(item.domain):
            what = "grid_search inside when() would run the same trial several times"
            yield Problem(item.name, what, "use tune.choice, or a grid_search over whole dicts")
    try:
        TopologicalSorter(parents).prepare()
    except CycleError as error:
        yield Problem(error.args[1][0], f"depends on itself: {' <- '.join(error.args[1])}")


def _call_nested(
    function: Callable[[Any], Any], fixed: Mapping[str, Any], config: Mapping[str, Any]
) -> Any:
    # Tune's own generator passes the whole experiment, whose `config` is ours, and
    # wraps it once more after a KeyError or AttributeError.
    while isinstance(config.get("config"), Mapping):
        config = config["config"]
    return function(DrawnValues({**fixed, **config}))


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
        raise LookupError(f"sample_from asks for {path!r}, which is not a parameter of the space")

    def __getattr__(self, key: str) -> Any:
        if key.startswith("__"):
            raise AttributeError(key)
        return self[key]


Description = dict[str, Any]
"""A parameter as data. `kind` is `float`, `int`, `choice`, `grid`, `fixed` or `function`.

Numbers have `lower`, `upper` (for an `int` one more than the largest, as Tune has it), `log`
and perhaps `step`; normally distributed ones have `mean` and `sd` instead. Choices and grids
have `choices`, fixed ones a `value`."""


def describe_space(space: SearchSpace) -> dict[str, Description]:
    return {item.name: describe_domain(item.domain) for item in space.parameters}


def describe_domain(domain: Any) -> Description:
    """Return a domain, or a plain value, as data."""
    if is_grid(domain):
        return {"kind": "grid", "choices": list(domain["grid_search"])}
    if isinstance(domain, Categorical):
        return {"kind": "choice", "choices": list(domain.categories)}
    if isinstance(domain, (Float, Integer)):
        return _describe_numbers(domain)
    if isinstance(domain, Function):
        return {"kind": "function"}
    return {"kind": "fixed", "value": domain}


def _describe_numbers(domain: Float | Integer) -> Description:
    sampler, step = domain.get_sampler(), {}
    if isinstance(sampler, Quantized):
        sampler, step = sampler.get_sampler(), {"step": sampler.q}
    kind = {"kind": "float" if isinstance(domain, Float) else "int"}
    if isinstance(sampler, Normal):
        return kind | {"mean": sampler.mean, "sd": sampler.sd} | step
    is_log = isinstance(sampler, LogUniform)
    return kind | {"lower": domain.lower, "upper": domain.upper, "log": is_log} | step
