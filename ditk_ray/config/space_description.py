"""Describing a search space as plain data, for records and reports."""

from __future__ import annotations

from typing import Any

from ray.tune.search.sample import (
    Categorical,
    Float,
    Function,
    Integer,
    LogUniform,
    Normal,
    Quantized,
)

from ditk_ray.config.space import Conditional, SearchSpace, is_grid

Description = dict[str, Any]
"""A parameter as data. `kind` is `float`, `int`, `choice`, `grid`, `fixed` or `function`.

Numbers have `lower`, `upper` (for an `int` one more than the largest, as Tune has it), `log`
and perhaps `step`; normally distributed ones have `mean` and `sd` instead. Choices and grids
have `choices`, fixed ones a `value`. A conditional one has `when`, a list of `{parent, is}`."""


def describe_space(space: SearchSpace) -> dict[str, Description]:
    """Return each parameter of a space as data, by name."""
    described = {}
    for item in space.parameters:
        described[item.name] = _describe_domain(item.domain)
        if item.conditions:
            conditions = [_describe_condition(condition) for condition in item.conditions]
            described[item.name]["when"] = conditions
    return described


def _describe_domain(domain: Any) -> Description:
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
    sampler = domain.get_sampler()
    step = {}
    if isinstance(sampler, Quantized):
        step = {"step": sampler.q}
        sampler = sampler.get_sampler()
    kind = {"kind": "float" if isinstance(domain, Float) else "int"}
    if isinstance(sampler, Normal):
        return kind | {"mean": sampler.mean, "sd": sampler.sd} | step
    is_log = isinstance(sampler, LogUniform)
    return kind | {"lower": domain.lower, "upper": domain.upper, "log": is_log} | step


def _describe_condition(condition: Conditional) -> dict[str, Any]:
    wanted = condition.wanted
    if isinstance(wanted, (set, frozenset)):
        wanted = sorted(wanted, key=str)
    shown = getattr(wanted, "__name__", "a function") if callable(wanted) else wanted
    return {"parent": condition.parent, "is": shown}
