"""Checking a search space against the config it is for, before anything runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

from ray.tune.search.sample import Float, Function
from ray.tune.search.variant_generator import generate_variants

from ditk_ray.config.engine_config import EngineConfig
from ditk_ray.config.space import CREATE_PREFIX, Parameter, SearchSpace, describe_domain
from ditk_ray.errors import Problem
from ditk_ray.util import dotted
from ditk_ray.util.suggest import nearest_path

_WHOLE_NUMBERS = "tune.randint, qrandint and lograndint draw whole numbers; if a fraction is meant"


@dataclass(frozen=True)
class KnownPaths:
    """All that a config may hold: what its file says and what DI-engine adds.

    `defaults` is DI-engine's complete config for the same policy, environment
    and workers. A value of None in it means "may be set, has no value yet".
    """

    config: EngineConfig
    defaults: EngineConfig

    def allowed(self, name: str) -> list[Any]:
        """Return the values known at the parameter's path; empty if it is unknown."""
        path, trees = self._trees(name)
        return [value for tree in trees for value in _look_up(tree, path)]

    def nearest(self, name: str) -> str | None:
        """Return the existing parameter name that `name` was probably meant to be."""
        path, trees = self._trees(name)
        known = {leaf for tree in trees for leaf in _all_paths(tree)}
        best = nearest_path(path, known)
        return name.removesuffix(path) + best if best else None

    def _trees(self, name: str) -> tuple[str, tuple[dotted.Tree, dotted.Tree]]:
        path = name.removeprefix(CREATE_PREFIX)
        if path == name:
            return path, (self.config.main, self.defaults.main)
        return path, (self.config.create, self.defaults.create)


def check_space(space: SearchSpace, known: KnownPaths) -> list[Problem]:
    """Return what is wrong with the space: unknown paths and values of a wrong type."""
    problems = [problem for item in space.parameters for problem in _check(item, known)]
    return problems or _check_drawn_functions(space, known)


def _check(parameter: Parameter, known: KnownPaths) -> Iterator[Problem]:
    if parameter.is_new:
        return
    allowed = known.allowed(parameter.name)
    if not allowed:
        nearest = known.nearest(parameter.name)
        close = f"did you mean {nearest!r}? " if nearest else ""
        hint = f"{close}To add a new key on purpose, write '+{parameter.name}'."
        what = "no such path in the config or in DI-engine's defaults for it"
        yield Problem(parameter.name, what, hint)
    for value in _example_values(parameter.domain) if allowed else ():
        yield from _check_value(parameter, value, allowed, known)


def _check_value(
    parameter: Parameter, value: Any, allowed: list[Any], known: KnownPaths
) -> Iterator[Problem]:
    if isinstance(value, Mapping) and any(isinstance(item, Mapping) for item in allowed):
        for key, item in value.items():
            yield from _check(Parameter(f"{parameter.name}.{key}", item), known)
    elif value is not None and not any(_same_kind(value, item) for item in allowed):
        stated = next(item for item in allowed if item is not None)
        what = f"{_shown(value)} where the config has {_shown(stated)}"
        is_fraction = isinstance(parameter.domain, Float) and type(stated) is int
        hint = f"{_WHOLE_NUMBERS}, write {float(stated)} in the config" if is_fraction else ""
        yield Problem(parameter.name, what, hint)


def _check_drawn_functions(space: SearchSpace, known: KnownPaths) -> list[Problem]:
    """Draw once, so that a `sample_from` that fails does so before the first trial."""
    functions = [item for item in space.parameters if isinstance(item.domain, Function)]
    if not functions:
        return []
    try:
        _, drawn = next(iter(generate_variants(space.tune_space())))
    except Exception as error:
        cause = error.__context__ or error
        # Tune's message holds the path of the one that failed.
        names = [item.name for item in functions if repr((item.name,)) in str(error)]
        where = ", ".join(names or [item.name for item in functions])
        what = f"sample_from fails: {type(cause).__name__}: {cause}"
        return [Problem(where, what, "it is given the values drawn so far")]
    return [
        problem
        for item in functions
        if not item.is_new
        for problem in _check_value(item, drawn[item.name], known.allowed(item.name), known)
    ]


def _example_values(domain: Any) -> list[Any]:
    described = describe_domain(domain)
    if described["kind"] == "fixed":
        return [described["value"]]
    numbers = {"float": [0.5], "int": [1]}
    return list(described.get("choices", numbers.get(described["kind"], [])))


def _same_kind(value: Any, base: Any) -> bool:
    if base is None:
        return True
    for kind in (bool, str, Mapping, (list, tuple)):
        if isinstance(base, kind) or isinstance(value, kind):
            return isinstance(base, kind) and isinstance(value, kind)
    numbers = (kind for kind in (Integral, Real) if isinstance(base, kind))
    return isinstance(value, next(numbers, object))


def _shown(value: Any) -> str:
    return f"the {type(value).__name__} {value!r}"


def _look_up(node: Any, path: str) -> list[Any]:
    for part in path.split("."):
        if node is None:
            break
        try:
            node = dotted.get(node, part)
        except dotted.MissingPathError:
            return []
    return [node]


def _all_paths(tree: dotted.Tree) -> Iterator[str]:
    for path, _ in dotted.leaves(tree):
        parts = path.split(".")
        yield from (".".join(parts[: end + 1]) for end in range(len(parts)))
