"""Ending trials, or the whole sweep, early."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from ray.tune.stopper import Stopper

from ditk_ray.config.objectives import Objective
from ditk_ray.errors import BadConfigError, Problem
from ditk_ray.search.combined import Combined
from ditk_ray.search.measures import Report
from ditk_ray.search.rule_text import HINT, parse_rule
from ditk_ray.search.rules import AllOf, AnyOf, OwnRule, Rule


class RuleStopper(Stopper):
    """Ends a trial as soon as its rule holds for it, and the sweep when it holds for that.

    Besides what Tune does with a stopper, whoever runs the sweep tells it of each trial's
    end (`end_trial`), in whatever way it ended; and may ask why it ended something. On a
    resumed sweep, `begin` and `replay` bring it to where it was.
    """

    def __init__(self, rule: Rule) -> None:
        self._rule = rule
        self._reasons: dict[str, str] = {}
        self._over: set[str] = set()
        self._why: str | None = None

    def __str__(self) -> str:
        return str(self._rule)

    @property
    def metrics(self) -> frozenset[str]:
        """The metrics that it looks for in results."""
        return self._rule.metrics

    @property
    def why(self) -> str | None:
        """The rule that ended the sweep, if one did."""
        return self._why

    def __call__(self, trial_id: str, result: Mapping[str, Any]) -> bool:
        """Say whether the trial ends with this result."""
        self._rule.take(Report(trial_id, result))
        if not self._rule.holds(trial_id):
            return False
        self._reasons[trial_id] = self._rule.reason(trial_id)
        return True

    def stop_all(self) -> bool:
        """Say whether the whole sweep ends."""
        if self._why is None and self._rule.holds_for_sweep():
            self._why = self._rule.reason(None)
        return self._why is not None

    def reason(self, trial_id: str) -> str | None:
        """Return the rule that ended a trial, until it is told of the trial's end."""
        return self._reasons.get(trial_id)

    def end_trial(self, trial_id: str) -> None:
        """Know that a trial is over, and forget it."""
        if trial_id not in self._over:
            self._over.add(trial_id)
            self._rule.end_trial(trial_id)
        self._reasons.pop(trial_id, None)

    def begin(self, seconds: float = 0.0) -> None:
        """Know that the sweep begins now, after `seconds` in earlier runs."""
        self._rule.begin(seconds)

    def replay(self, trial_id: str, results: Iterable[Mapping[str, Any]]) -> None:
        """Look at what a trial reported before; that ends nothing by itself."""
        for result in results:
            self._rule.take(Report(trial_id, result, is_replayed=True))


def build_stopper(
    given: Any,
    metric: str = "eval_value",
    mode: str = "max",
    more: Sequence[Objective] = (),
    seeds: int = 1,
) -> RuleStopper | None:
    """Make a stopper of what a user gave; `more` are the objectives besides the first.

    Given is a rule, a dict with the value at which each metric ends a trial, a function, a
    `Stopper`, or several of them, of which in a list each is enough. Every trial is run on so
    many `seeds`. Raises `BadConfigError`.
    """
    if given is None:
        return None
    modes = {metric: mode} | {objective.metric: objective.mode for objective in more}
    return RuleStopper(_rule(given, partial(parse_rule, modes=modes, seeds=seeds)))


def _rule(given: Any, parse: Callable[[str], Rule]) -> Rule:
    if isinstance(given, str):
        return parse(given)
    if isinstance(given, Mapping):
        return parse(",".join(f"{metric}>={bound}" for metric, bound in given.items()))
    if isinstance(given, Combined):
        return _combined(given, parse)
    if isinstance(given, (list, tuple)):
        return _combined(Combined("any", tuple(given)), parse)
    if isinstance(given, type) and issubclass(given, Stopper):
        return OwnRule(given())
    if isinstance(given, Stopper) or callable(given):
        return OwnRule(given)
    raise BadConfigError(Problem("stopper", f"{given!r} is no stopper", HINT))


def _combined(given: Combined, parse: Callable[[str], Rule]) -> Rule:
    rules = [_rule(part, parse) for part in given.parts]
    if not rules:
        raise BadConfigError(Problem("stopper", "nothing is put together", HINT))
    return AnyOf(rules) if given.kind == "any" else AllOf(rules)
