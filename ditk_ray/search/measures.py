"""What rules measure: a trial's results, one by one or the last few of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from statistics import fmean
from typing import Any

from ray.tune.result import AUTO_RESULT_KEYS

from ditk_ray.trial.report_keys import ATTEMPT, ENDED, FAILURE, FAILURES, RESULT, SAVED

TUNE_KEYS = frozenset(
    {*AUTO_RESULT_KEYS, "config", "done", "experiment_tag", "timestamp", "trial_id"}
)
"""What Tune adds to every result."""

NO_METRICS = TUNE_KEYS | {ATTEMPT, ENDED, FAILURE, FAILURES, RESULT, SAVED}
"""What a result holds besides what the trial measured."""


@dataclass(frozen=True)
class Report:
    """A result of a trial."""

    trial: str
    result: Mapping[str, Any]
    is_replayed: bool = False
    """Whether it was read again from what a trial has written: without most of Tune's keys."""

    @property
    def attempt(self) -> Any:
        """Which attempt of the trial it is from."""
        return self.result.get(ATTEMPT)

    @property
    def place(self) -> tuple[float, float]:
        """How far the training was; a later attempt may begin before where the last one was."""
        steps = (number_of(self, name) for name in ("env_step", "train_iter"))
        first, second = (step or 0.0 for step in steps)
        return first, second

    @property
    def is_last_word(self) -> bool:
        """Whether it says how a trial ended, and repeats an evaluation; a NaN is one itself."""
        return self.result.get(ENDED) not in (None, "nan")

    @property
    def has_no_evaluation(self) -> bool:
        """Whether it only says that a trial ended: it failed, or was cancelled before its first."""
        return FAILURE in self.result or (
            ENDED in self.result and not set(self.result) - NO_METRICS
        )


def number_of(report: Report, metric: str) -> float | None:
    """Return a metric's value, None if there is none or if it is no number."""
    value = report.result.get(metric)
    return float(value) if isinstance(value, Real) else None


@dataclass(frozen=True)
class _Entry:
    attempt: Any
    place: tuple[float, float]
    value: float


class Window:
    """The last few values of each trial, along its line of progress."""

    def __init__(self, length: int) -> None:
        self.length = length
        self._entries: dict[str, deque[_Entry]] = {}

    def last(self, report: Report) -> float | None:
        """Return the value before this report's."""
        entries = self._before(report)
        return entries[-1].value if entries else None

    def add(self, report: Report, value: float) -> list[float]:
        """Take the value of this report, and return the last ones with it, oldest first."""
        entries = self._before(report)
        entries.append(_Entry(report.attempt, report.place, value))
        return [entry.value for entry in entries]

    def end_trial(self, trial: str) -> None:
        """Forget a trial."""
        self._entries.pop(trial, None)

    def _before(self, report: Report) -> deque[_Entry]:
        """Return what was before this report, without what it repeats or does again."""
        entries = self._entries.setdefault(report.trial, deque(maxlen=self.length))
        while entries and _supersedes(report, entries[-1]):
            entries.pop()
        return entries


def _supersedes(report: Report, earlier: _Entry) -> bool:
    """Say whether a report takes the place of an earlier one of its trial."""
    if report.attempt != earlier.attempt:
        return report.place <= earlier.place
    return report.is_last_word and report.place == earlier.place


class Measure:
    """The newest value of a metric."""

    def __init__(self, metric: str) -> None:
        self.metric = metric

    def at(self, report: Report) -> float | None:
        """Return the value at a trial's newest report, None if there is none."""
        return number_of(report, self.metric)

    def end_trial(self, trial: str) -> None:
        """Forget a trial."""


class Mean(Measure):
    """The mean of a metric over a trial's last evaluations; there is none before so many."""

    def __init__(self, metric: str, evaluations: int) -> None:
        super().__init__(metric)
        self._window = Window(evaluations)

    def at(self, report: Report) -> float | None:
        """Return the mean."""
        value = number_of(report, self.metric)
        if value is None:
            return None
        values: Sequence[float] = self._window.add(report, value)
        return fmean(values) if len(values) == self._window.length else None

    def end_trial(self, trial: str) -> None:
        """Forget a trial."""
        self._window.end_trial(trial)
