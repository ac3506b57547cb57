"""Rules about a sweep as a whole: its time, what all trials did, what one of them reached."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable
from typing import Any

from ditk_ray.search.measures import Report, number_of
from ditk_ray.search.rules import Rule, TrialRule


class SweepRule(Rule):
    """A rule about the whole sweep: it holds for every trial or for none."""

    def holds(self, trial: str) -> bool:
        """Say whether it holds for the sweep."""
        return self.holds_for_sweep()


class AnyTrial(SweepRule):
    """Holds for the sweep from when another rule first held for one of its trials."""

    def __init__(self, rule: TrialRule) -> None:
        self._rule = rule
        self._has_held = False
        self.metrics = rule.metrics

    def __str__(self) -> str:
        return f"sweep.{self._rule}"

    def take(self, report: Report) -> None:
        """Look at a trial's newest result."""
        self._rule.take(report)
        self._has_held = self._has_held or self._rule.holds(report.trial)

    def holds_for_sweep(self) -> bool:
        """Say whether it has held."""
        return self._has_held

    def end_trial(self, trial: str) -> None:
        """Forget a trial."""
        self._rule.end_trial(trial)


class _Total(SweepRule):
    """Holds once a figure of the whole sweep is on the right side of a bound."""

    def __init__(self, text: str, compare: Callable[[float, float], bool], bound: float) -> None:
        self._text = text
        self._compare = compare
        self._bound = bound

    def __str__(self) -> str:
        return self._text

    def take(self, report: Report) -> None:
        """Look at a trial's newest result."""

    @abstractmethod
    def total(self) -> float:
        """Return the figure."""

    def holds_for_sweep(self) -> bool:
        """Compare the figure."""
        return self._compare(self.total(), self._bound)


class SweepSum(_Total):
    """About the sum of a metric over all trials: `sweep.env_step>=1e6`.

    Trials report the mean of their `seeds`, each of which has made its own steps.
    """

    def __init__(
        self,
        text: str,
        metric: str,
        compare: Callable[[float, float], bool],
        bound: float,
        seeds: int = 1,
    ) -> None:
        super().__init__(text, compare, bound)
        self._metric = metric
        self._seeds = seeds
        self._running: dict[str, float] = {}
        self._over = 0.0
        self.metrics = frozenset([metric])

    def take(self, report: Report) -> None:
        """Note how far a trial is."""
        value = number_of(report, self._metric)
        if value is not None:
            self._running[report.trial] = self._seeds * value

    def total(self) -> float:
        """Return the sum."""
        return self._over + sum(self._running.values())

    def end_trial(self, trial: str) -> None:
        """Add how far a trial came."""
        self._over += self._running.pop(trial, 0.0)


class SweepTrials(_Total):
    """About the number of trials that have ended, in whatever way: `sweep.trials>=50`."""

    _ended = 0

    def total(self) -> float:
        """Return the number."""
        return self._ended

    def end_trial(self, trial: str) -> None:
        """Count it."""
        self._ended += 1


class SweepTime(_Total):
    """About the wall-clock time of the sweep: `sweep.time>=2h`.

    It runs from `begin`, or else from when it is first asked for.
    """

    _since: float | None = None
    _earlier = 0.0

    def begin(self, seconds: float) -> None:
        """Start the clock at what earlier runs took."""
        self._earlier = seconds
        self._since = time.monotonic()

    def total(self) -> float:
        """Return the seconds."""
        if self._since is None:
            self._since = time.monotonic()
        return self._earlier + time.monotonic() - self._since

    def __getstate__(self) -> dict[str, Any]:
        """Leave out this machine's clock: Tune saves its stopper."""
        gone = 0.0 if self._since is None else time.monotonic() - self._since
        return {**vars(self), "_since": None, "_earlier": self._earlier + gone}
