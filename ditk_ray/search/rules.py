"""When to stop: rules that look at each result of each trial.

A rule holds for a trial, which then ends, or for the sweep, which then ends with all of its
trials. It is shown every result once, in the order they come, and told of each trial's end.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from ray.tune.stopper import Stopper

from ditk_ray.search.measures import Measure, Report, Window, number_of


class Rule(ABC):
    """A condition; `str` gives it as a person would write it.

    `metrics` are the names that it looks for in results.
    """

    metrics: frozenset[str] = frozenset()

    @abstractmethod
    def take(self, report: Report) -> None:
        """Look at a trial's newest result."""

    @abstractmethod
    def holds(self, trial: str) -> bool:
        """Say whether it holds for a trial, at the trial's newest result."""

    def holds_for_sweep(self) -> bool:
        """Say whether it holds for the sweep as a whole."""
        return False

    def begin(self, seconds: float) -> None:  # noqa: B027  most rules have no clock
        """Know that the sweep begins now, after `seconds` in earlier runs."""

    def end_trial(self, trial: str) -> None:  # noqa: B027  nor anything to forget
        """Know that a trial is over; nothing of it has to be kept."""

    def reason(self, trial: str | None) -> str:
        """Return the part that holds for a trial, or for the sweep if none is given."""
        return str(self)


class TrialRule(Rule):
    """A rule about single results: it holds for a trial as its newest result says."""

    def __init__(self, text: str, metrics: Sequence[str] = ()) -> None:
        self._text = text
        self._holding: set[str] = set()
        self.metrics = frozenset(metrics)

    def __str__(self) -> str:
        return self._text

    @abstractmethod
    def applies(self, report: Report) -> bool:
        """Say whether it holds at this result."""

    def take(self, report: Report) -> None:
        """Look at a trial's newest result."""
        self._holding.discard(report.trial)
        if self.applies(report):
            self._holding.add(report.trial)

    def holds(self, trial: str) -> bool:
        """Say whether it holds for a trial."""
        return trial in self._holding

    def end_trial(self, trial: str) -> None:
        """Forget a trial."""
        self._holding.discard(trial)


class Threshold(TrialRule):
    """Holds once a measure is on the right side of a bound: `eval_value>=195`."""

    def __init__(
        self, text: str, measure: Measure, compare: Callable[[float, float], bool], bound: float
    ) -> None:
        super().__init__(text, [measure.metric])
        self._measure = measure
        self._compare = compare
        self._bound = bound

    def applies(self, report: Report) -> bool:
        """Compare the measure; what is missing is on no side."""
        value = self._measure.at(report)
        return value is not None and self._compare(value, self._bound)

    def end_trial(self, trial: str) -> None:
        """Forget a trial."""
        super().end_trial(trial)
        self._measure.end_trial(trial)


class Plateau(TrialRule):
    """Holds when the best of a metric did not improve over so many evaluations.

    `least` is what counts as an improvement: more than so much, or with `is_share` more
    than this share of what was best before.
    """

    def __init__(
        self,
        text: str,
        metric: str,
        mode: str,
        evaluations: int,
        least: float = 0.0,
        is_share: bool = False,
    ) -> None:
        super().__init__(text, [metric])
        self._metric = metric
        self._sign = 1 if mode == "max" else -1
        self._least = least
        self._is_share = is_share
        self._bests = Window(evaluations + 1)  # what was best at each evaluation

    def applies(self, report: Report) -> bool:
        """Compare the best with what it was so many evaluations ago."""
        value = number_of(report, self._metric)
        if value is None:
            return False
        signed = -math.inf if math.isnan(value) else self._sign * value
        before = self._bests.last(report)
        best = signed if before is None else max(before, signed)
        bests = self._bests.add(report, best)
        return len(bests) == self._bests.length and not self._is_improved(bests[0], best)

    def _is_improved(self, old: float, new: float) -> bool:
        if math.isinf(old):
            return new > old
        return new - old > (self._least * abs(old) if self._is_share else self._least)

    def end_trial(self, trial: str) -> None:
        """Forget a trial."""
        super().end_trial(trial)
        self._bests.end_trial(trial)


class Nan(TrialRule):
    """Holds when one of these metrics is no number any more."""

    def applies(self, report: Report) -> bool:
        """Look for NaN."""
        values = (number_of(report, metric) for metric in self.metrics)
        return any(value is not None and math.isnan(value) for value in values)


class OwnRule(TrialRule):
    """A function or a Tune `Stopper` of the user's."""

    def __init__(self, given: Stopper | Callable[[str, dict[str, Any]], bool]) -> None:
        super().__init__(getattr(given, "__name__", type(given).__name__))
        self._given = given

    def applies(self, report: Report) -> bool:
        """Ask it about an evaluation; the end of a trial that had none is no matter for it."""
        if report.has_no_evaluation:
            return False
        try:
            return bool(self._given(report.trial, dict(report.result)))
        except KeyError:
            if report.is_replayed:  # it looks at what only Tune knew, and did not end it then
                return False
            raise

    def holds(self, trial: str) -> bool:
        """Say whether it holds for a trial, or for all."""
        return super().holds(trial) or self.holds_for_sweep()

    def holds_for_sweep(self) -> bool:
        """Ask a stopper about the sweep; a function knows nothing of it."""
        return isinstance(self._given, Stopper) and bool(self._given.stop_all())


class _Several(Rule):
    """Rules put together."""

    _word: str

    def __init__(self, rules: Sequence[Rule]) -> None:
        self._rules = tuple(rules)
        self.metrics = frozenset(name for rule in rules for name in rule.metrics)

    def __str__(self) -> str:
        return f" {self._word} ".join(
            f"({rule})" if isinstance(rule, _Several) else str(rule) for rule in self._rules
        )

    def take(self, report: Report) -> None:
        """Show a result to all of them, also where one would be enough to know."""
        for rule in self._rules:
            rule.take(report)

    def begin(self, seconds: float) -> None:
        """Tell all of them."""
        for rule in self._rules:
            rule.begin(seconds)

    def end_trial(self, trial: str) -> None:
        """Tell all of them."""
        for rule in self._rules:
            rule.end_trial(trial)


class AnyOf(_Several):
    """Holds when one of its rules does."""

    _word = "or"

    def holds(self, trial: str) -> bool:
        """Say whether it holds for a trial."""
        return any(rule.holds(trial) for rule in self._rules)

    def holds_for_sweep(self) -> bool:
        """Say whether it holds for the sweep."""
        return any(rule.holds_for_sweep() for rule in self._rules)

    def reason(self, trial: str | None) -> str:
        """Return the first rule that holds."""
        held = (rule for rule in self._rules if _does_hold(rule, trial))
        return next((rule.reason(trial) for rule in held), str(self))


class AllOf(_Several):
    """Holds when all of its rules do: with one about a trial among them, never for the sweep."""

    _word = "and"

    def holds(self, trial: str) -> bool:
        """Say whether it holds for a trial."""
        return all(rule.holds(trial) for rule in self._rules)

    def holds_for_sweep(self) -> bool:
        """Say whether it holds for the sweep."""
        return all(rule.holds_for_sweep() for rule in self._rules)

    def reason(self, trial: str | None) -> str:
        """Return what holds of each."""
        return " and ".join(rule.reason(trial) for rule in self._rules)


def _does_hold(rule: Rule, trial: str | None) -> bool:
    return rule.holds_for_sweep() if trial is None else rule.holds(trial)
