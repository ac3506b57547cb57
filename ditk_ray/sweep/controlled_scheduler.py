"""A scheduler around the one that was chosen: what people ask for comes first.

Tune asks its scheduler who may run and what becomes of a trial after each evaluation.
This one lets the inner scheduler decide, and adds what it cannot know: trials that are
held, displaced or cancelled, trials that have ended without a score, and what a failure
costs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

from ray.tune.experiment import Trial
from ray.tune.schedulers import PopulationBasedTraining, TrialScheduler

from ditk_ray.search.schedulers import base_of
from ditk_ray.sweep.last_saves import LastSaves
from ditk_ray.sweep.places import Places
from ditk_ray.sweep.trial_source import TrialSource, has_score

Controller = Any
_LOOK_SECONDS = 0.5
_YET_TO_COME = SimpleNamespace(status=Trial.PENDING)
"""Stands for the trials that are still to be made, for schedulers that take turns with them."""


class ControlledScheduler(TrialScheduler):
    """Asks the inner scheduler, after those who come before it.

    `look` is called about twice a second with Tune's controller, between events, `failed`
    for every failure that reached Tune, before the trial is started again, and `added` for
    every trial that the inner scheduler has just been given. `saves` delays a pause until
    the trial has a checkpoint.
    """

    def __init__(
        self,
        inner: TrialScheduler,
        places: Places,
        source: TrialSource,
        look: Callable[[Controller], None],
        failed: Callable[[Trial], None],
        added: Callable[[Trial], None],
        saves: LastSaves,
    ) -> None:
        super().__init__()
        self.inner = inner
        self._places = places
        self._source = source
        self._look = look
        self._failed = failed
        self._added = added
        self._saves = saves
        self._next_look = 0.0
        self._paused: set[str] = set()
        source.must_wait = lambda: places.next_waiting(self._paused) is not None

    def __getstate__(self) -> dict[str, Any]:
        """Leave nothing to be pickled: Tune keeps a copy that nobody restores."""
        return {}

    @property
    def metric(self) -> Any:
        """The metric that the inner scheduler compares by."""
        return self.inner.metric

    @property
    def supports_buffered_results(self) -> bool:
        """Never: a decision is about the last evaluation."""
        return False

    def set_search_properties(self, metric: str | None, mode: str | None, **spec: Any) -> bool:
        """Pass on what is optimised."""
        return bool(self.inner.set_search_properties(metric, mode, **spec))

    def on_trial_add(self, tune_controller: Controller, trial: Trial) -> None:
        """Pass on a trial, with what it has done before."""
        self.inner.on_trial_add(tune_controller, trial)
        self._added(trial)

    def on_trial_error(self, tune_controller: Controller, trial: Trial) -> None:
        """Note a failure; Tune starts the trial again next, if it may."""
        self._failed(trial)
        self.inner.on_trial_error(tune_controller, trial)

    def on_trial_result(
        self, tune_controller: Controller, trial: Trial, result: dict[str, Any]
    ) -> str:
        """Return what becomes of a trial after an evaluation."""
        view = self._with_those_to_come(tune_controller)
        decision: str = self.inner.on_trial_result(view, trial, result)
        if decision != TrialScheduler.CONTINUE:
            return decision
        running = [str(one) for one in _in_state(tune_controller, Trial.RUNNING)]
        self._note_paused(tune_controller)
        if not self._places.must_give_way(str(trial), running, self._paused):
            self._saves.forget(str(trial))
        elif not self._saves.must_wait(str(trial), result):
            self._places.wait(str(trial))
            return str(TrialScheduler.PAUSE)
        return decision

    def on_trial_complete(
        self, tune_controller: Controller, trial: Trial, result: Mapping[str, Any]
    ) -> None:
        """Pass on an end; one without a score is a failure to who compares scores."""
        self._places.forget(str(trial))
        if has_score(result):
            self.inner.on_trial_complete(tune_controller, trial, result)
        else:
            self.inner.on_trial_error(tune_controller, trial)

    def on_trial_remove(self, tune_controller: Controller, trial: Trial) -> None:
        """Pass on the end of a trial that was not running."""
        self._places.forget(str(trial))
        self.inner.on_trial_remove(tune_controller, trial)

    def choose_trial_to_run(self, tune_controller: Controller) -> Trial | None:
        """Return who is next: those that were displaced or released, then the inner's choice."""
        if time.monotonic() >= self._next_look:
            self._next_look = time.monotonic() + _LOOK_SECONDS
            self._look(tune_controller)
        self._note_paused(tune_controller)
        if self._source.is_full:
            return self._pending_choice(tune_controller)
        next_waiting = self._places.next_waiting(self._paused)
        if next_waiting is not None:
            self._places.took_place(next_waiting)
            return _named(tune_controller, next_waiting)
        return self._inner_choice(tune_controller)

    def debug_string(self) -> str:
        """Describe the inner scheduler."""
        return str(self.inner.debug_string())

    def _inner_choice(self, controller: Controller) -> Trial | None:
        if self._places.is_open_to_all:
            return self.inner.choose_trial_to_run(controller)
        chosen = self.inner.choose_trial_to_run(_View(controller, self._is_free, ()))
        # Some schedulers have lists of their own.
        return chosen if chosen is not None and self._is_free(chosen) else None

    def _pending_choice(self, controller: Controller) -> Trial | None:
        """Return the inner's choice only if it has its place already."""
        chosen = self._inner_choice(controller)
        return chosen if chosen is not None and chosen.status == Trial.PENDING else None

    def _is_free(self, trial: Trial) -> bool:
        return not self._places.is_set_aside(str(trial))

    def _note_paused(self, controller: Controller) -> None:
        self._paused = {str(trial) for trial in _in_state(controller, Trial.PAUSED)}

    def _with_those_to_come(self, controller: Controller) -> Controller:
        """Let a population take turns also with trials that are not made yet."""
        if isinstance(base_of(self.inner), PopulationBasedTraining) and self._source.has_more:
            return _View(controller, lambda _: True, (_YET_TO_COME,))
        return controller


class _View:
    """Tune's controller with some trials left out, and others that are not there."""

    def __init__(
        self, controller: Controller, shows: Callable[[Any], bool], more: tuple[Any, ...]
    ) -> None:
        self._controller = controller
        self._shows = shows
        self._more = more

    def get_trials(self) -> list[Any]:
        return [trial for trial in self._controller.get_trials() if self._shows(trial)] + [
            *self._more
        ]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._controller, name)


def _in_state(controller: Controller, status: str) -> list[Trial]:
    return [trial for trial in controller.get_live_trials() if trial.status == status]


def _named(controller: Controller, name: str) -> Trial | None:
    return next((trial for trial in controller.get_live_trials() if str(trial) == name), None)
