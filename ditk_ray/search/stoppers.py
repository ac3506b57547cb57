"""Ending trials early: rules that a person can write on a command line."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from numbers import Real
from typing import Any

from ray.tune.stopper import FunctionStopper, Stopper

from ditk_ray.errors import BadConfigError, Problem

_RULE = re.compile(r"\s*([\w./-]+)\s*(>=|<=|>|<)\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*")
_OPERATORS: Mapping[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}


class RuleStopper(Stopper):
    """Ends a trial as soon as one of its rules holds, such as `env_step>=10000`."""

    def __init__(self, rules: str) -> None:
        self._rules = [_parse(rule) for rule in rules.split(",")]

    def __call__(self, trial_id: str, result: Mapping[str, Any]) -> bool:
        """Say whether the trial ends with this result."""
        return any(
            compare(result[metric], bound)
            for metric, compare, bound in self._rules
            if isinstance(result.get(metric), Real)
        )

    def stop_all(self) -> bool:
        """Never end the whole sweep."""
        return False


def build_stopper(given: Any) -> Stopper | None:
    """Make a stopper of what a user gave: a rule, a dict, a function, or a `Stopper`.

    A dict says for each metric the value at which it ends a trial. Raises
    `BadConfigError`.
    """
    if given is None or isinstance(given, Stopper):
        return given
    if isinstance(given, type) and issubclass(given, Stopper):
        return given()
    if isinstance(given, str):
        return RuleStopper(given)
    if isinstance(given, Mapping):
        return RuleStopper(",".join(f"{metric}>={bound}" for metric, bound in given.items()))
    if callable(given):
        return FunctionStopper(given)
    raise BadConfigError(Problem("stopper", f"{given!r} is no stopper", _HINT))


_HINT = (
    "give a rule such as 'eval_value>=195' (several with commas between), a dict, "
    "a function of (trial_id, result), or a Ray Tune Stopper"
)


def _parse(rule: str) -> tuple[str, Callable[[float, float], bool], float]:
    match = _RULE.fullmatch(rule)
    if match is None:
        raise BadConfigError(Problem("stopper", f"{rule!r} is no rule", _HINT))
    return match[1], _OPERATORS[match[2]], float(match[3])
