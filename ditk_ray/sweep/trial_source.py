"""Handing trials to Ray Tune: those of an earlier run that are not over, then new ones.

Tune's own generators name trials at random, forget what they had when their process is
killed, and cannot make more than was asked for at first. This one numbers trials, writes
each into the ledger before it is started, and goes on where an earlier process ended.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ray.tune.experiment import Experiment, Trial
from ray.tune.experiment.config_parser import _create_trial_from_spec, _make_parser
from ray.tune.search import SearchAlgorithm

from ditk_ray.config.space import SearchSpace
from ditk_ray.sweep.draws import Drawn, Draws, Exhausted
from ditk_ray.sweep.ledger import Ledger
from ditk_ray.trial.report_keys import ENDED

TRIAL_PREFIX = "trial_"
_NO_SCORE = ("failed", "nan", "cancelled")
"""How trials end that a searcher cannot learn a score from."""


@dataclass(frozen=True)
class OpenTrial:
    """A trial that was made and is not over."""

    name: str
    drawn: Drawn


class TrialSource(SearchAlgorithm):
    """Makes trials, at most so many at once, until there are as many as were asked for."""

    def __init__(
        self,
        draws: Draws,
        ledger: Ledger,
        space: SearchSpace,
        total: int,
        concurrency: int,
        made: int = 0,
        unfinished: Sequence[OpenTrial] = (),
    ) -> None:
        self.must_wait: Callable[[], bool] = lambda: False
        """Set by who schedules: whether a trial that was displaced has the next free place."""
        self._draws = draws
        self._ledger = ledger
        self._space = space
        self._total = total
        self.concurrency = concurrency
        self._made = made
        self._unfinished = list(unfinished)
        self._live: dict[str, Trial] = {}
        self._spec: dict[str, Any] = {}
        self._parser = _make_parser()

    def __getstate__(self) -> dict[str, Any]:
        """Leave nothing to be pickled: Tune keeps a copy that nobody restores."""
        return {}

    @property
    def searcher(self) -> Any:
        """The searcher that draws, for schedulers that work together with theirs."""
        return getattr(self._draws, "searcher", None)

    @property
    def total_samples(self) -> int:
        """How many trials there will be."""
        return self._total

    @property
    def has_more(self) -> bool:
        """Whether trials are still to be made or made again."""
        return not self.is_finished()

    @property
    def active(self) -> int:
        """How many trials take up, or wait for, a place; paused ones do not."""
        places = (Trial.PENDING, Trial.RUNNING)
        return sum(trial.status in places for trial in self._live.values())

    @property
    def is_full(self) -> bool:
        """Whether as many trials run as may."""
        return self.active >= self.concurrency

    def set_search_properties(self, *_: Any, **__: Any) -> bool:
        """Take nothing: the draws know their space and metric."""
        return True

    def add_configurations(self, experiments: Sequence[Experiment]) -> None:
        """Take what all trials have in common."""
        (experiment,) = experiments
        self._spec = experiment.spec

    def next_trial(self) -> Trial | None:
        """Return the next trial to start, None while there is no place for it."""
        if self.is_finished() or self.is_full or self.must_wait():
            return None
        if self._unfinished:
            return self._trial(self._unfinished.pop(0))
        return self._new_trial()

    def is_finished(self) -> bool:
        """Say whether every trial has been made."""
        return self._finished or (self._made >= self._total and not self._unfinished)

    def on_trial_result(self, trial_id: str, result: Mapping[str, Any]) -> None:
        """Pass on an evaluation."""
        self._draws.reported(trial_id, result)

    def on_trial_complete(
        self, trial_id: str, result: Mapping[str, Any] | None = None, error: bool = False
    ) -> None:
        """Pass on an end; one without a score is told as a failure."""
        trial = self._live.pop(trial_id, None)
        if trial is None:
            return
        if result is None and trial.has_reported_at_least_once:
            result = trial.last_result  # Tune does not pass on that of a paused one
        is_scored = not error and result is not None and has_score(result)
        self._draws.ended(trial_id, trial.config, result if is_scored else None)

    def _new_trial(self) -> Trial | None:
        name = f"{TRIAL_PREFIX}{self._made:05d}"
        try:
            drawn = self._draws.draw(trial_id(name))
        except Exhausted:
            self.set_finished()
            return None
        if drawn is None:
            return None
        self._made += 1
        self._ledger.made(name, drawn, self._space.active(drawn))
        return self._trial(OpenTrial(name, drawn))

    def _trial(self, made: OpenTrial) -> Trial:
        spec = {**self._spec, "config": copy.deepcopy(made.drawn)}
        trial = _create_trial_from_spec(
            spec,
            self._parser,
            evaluated_params=made.drawn,
            experiment_tag=made.name,
            trial_id=trial_id(made.name),
        )
        self._live[trial.trial_id] = trial
        return trial


def has_score(result: Mapping[str, Any]) -> bool:
    """Say whether a trial's last result is one to compare others with."""
    return result.get(ENDED) not in _NO_SCORE


def trial_name(trial: Trial) -> str:
    """Name a trial by its number."""
    return f"{TRIAL_PREFIX}{trial.trial_id}"


def trial_id(name: str) -> str:
    """Return the id that Tune and the searcher know a trial by."""
    return name.removeprefix(TRIAL_PREFIX)
