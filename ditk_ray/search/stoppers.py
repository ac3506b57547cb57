"""Ending trials, or the whole sweep, early: what a job may give, and how Tune asks it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ray.tune.result import AUTO_RESULT_KEYS
from ray.tune.stopper import Stopper

from ditk_ray.config.terms import Objective
from ditk_ray.errors import BadConfigError, Problem
from ditk_ray.search.rules import HINT, History, Result, Rule, combine, parse_rule
from ditk_ray.trial.reports import ATTEMPT, ENDED, FAILURE, FAILURES, RESULT, SAVED

NO_METRICS = frozenset(
    {*AUTO_RESULT_KEYS, "config", "done", "experiment_tag", "timestamp", "trial_id"}
    | {ATTEMPT, ENDED, FAILURE, FAILURES, RESULT, SAVED}
)
"""What a result holds in addition to what the trial measured."""


@dataclass(frozen=True)
class Combined:
    """Stoppers of any kind, of which one or all have to agree to end a trial or the sweep."""

    word: Literal["and", "or"]
    parts: tuple[Any, ...]


def any_of(*stoppers: Any) -> Combined:
    """End a trial, or the sweep, as soon as one of the stoppers would.

    Each is a rule such as `"eval_value>=195"`, a dict, a function of `(trial_id, result)`,
    a Ray Tune `Stopper`, or again several put together.
    """
    return Combined("or", stoppers)


def all_of(*stoppers: Any) -> Combined:
    """End a trial, or the sweep, only when all of the stoppers would at the same time."""
    return Combined("and", stoppers)


class OwnRule(Rule):
    """A function or a Tune `Stopper` of the user's."""

    def __init__(self, given: Stopper | Callable[[str, dict[str, Any]], bool]) -> None:
        name = getattr(given, "__name__", type(given).__name__)
        super().__init__(name, frozenset(), self._holds)
        self._given = given
        self._holding: set[str] = set()

    def take(self, history: History, trial: str, result: Result, is_replayed: bool) -> None:
        self._holding.discard(trial)
        if FAILURE in result or (ENDED in result and not set(result) - NO_METRICS):
            return  # it failed, or was cancelled before its first evaluation
        try:
            if self._given(trial, dict(result)):
                self._holding.add(trial)
        except KeyError:
            if not is_replayed:  # else it looks at what only Tune knew, and did not end it then
                raise

    def _holds(self, history: History, trial: str | None) -> bool:
        ends_all = isinstance(self._given, Stopper) and self._given.stop_all()
        return trial in self._holding or bool(ends_all)

    def end_trial(self, trial: str) -> None:
        self._holding.discard(trial)


class RuleStopper(Stopper):
    """Ends a trial as soon as its rule holds for it, and the sweep when it holds for that.

    Whoever runs the sweep calls `end_trial` for each trial, in whatever way it ended. On a
    resumed sweep, `begin` and `replay` bring it to where it was.
    """

    def __init__(self, rule: Rule, seeds: int = 1) -> None:
        self.metrics = rule.metrics
        """The metrics that it looks for in results."""
        self.why: str | None = None
        """The rule that ended the sweep, if one did."""
        self._rule = rule
        self._history = History(rule.metrics, seeds)
        self._reasons: dict[str, str] = {}

    def __str__(self) -> str:
        return self._rule.text

    def __call__(self, trial_id: str, result: Result) -> bool:
        self._take(trial_id, result)
        if not self._rule.holds(self._history, trial_id):
            return False
        self._reasons[trial_id] = self._rule.reason(self._history, trial_id)
        return True

    def stop_all(self) -> bool:
        if self.why is None and self._rule.holds(self._history, None):
            self.why = self._rule.reason(self._history, None)
        return self.why is not None

    def reason(self, trial_id: str) -> str | None:
        """Return the rule that ended a trial, until `end_trial`."""
        return self._reasons.get(trial_id)

    def end_trial(self, trial_id: str) -> None:
        self._history.end(trial_id)
        for rule in self._rule.leaves():
            rule.end_trial(trial_id)
        self._reasons.pop(trial_id, None)

    def begin(self, seconds: float = 0.0) -> None:
        """Start the clock, after `seconds` in earlier runs."""
        self._history.begin(seconds)

    def replay(self, trial_id: str, results: Iterable[Result]) -> None:
        """Look at what a trial reported before; that by itself ends nothing."""
        for result in results:
            self._take(trial_id, result, is_replayed=True)

    def _take(self, trial_id: str, result: Result, is_replayed: bool = False) -> None:
        self._history.add(trial_id, result)
        for rule in self._rule.leaves():  # all of them, also where one would be enough to know
            rule.take(self._history, trial_id, result, is_replayed)


def build_stopper(
    given: Any, objectives: Sequence[Objective] = (Objective("eval_value", "max"),), seeds: int = 1
) -> RuleStopper | None:
    """Make a stopper of what a user gave.

    Given is a rule, a dict with the value at which each metric ends a trial, a function, a
    `Stopper`, or several of them; in a list each is enough. Every trial is run on so
    many `seeds`. Raises `BadConfigError`.
    """
    if given is None:
        return None
    modes = {objective.metric: objective.mode for objective in objectives}
    return RuleStopper(_build_rule(given, modes), seeds)


def _build_rule(given: Any, modes: Mapping[str, str]) -> Rule:
    if isinstance(given, str):
        return parse_rule(given, modes)
    if isinstance(given, Mapping):
        return parse_rule(",".join(f"{key}>={bound}" for key, bound in given.items()), modes)
    if isinstance(given, (list, tuple)):
        given = any_of(*given)
    if isinstance(given, Combined):
        if not given.parts:
            raise BadConfigError(Problem("stopper", "is empty", HINT))
        rules = [_build_rule(part, modes) for part in given.parts]
        return combine(given.word, rules)
    if isinstance(given, type) and issubclass(given, Stopper):
        given = given()
    if not callable(given):
        raise BadConfigError(Problem("stopper", f"{given!r} is not a stopper", HINT))
    return OwnRule(given)
