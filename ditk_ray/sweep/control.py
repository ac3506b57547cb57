"""Controlling the trials of a running sweep: a scheduler around the one that was chosen.

Tune asks its scheduler who may run and what becomes of a trial after each evaluation.
`ControlledScheduler` lets the inner scheduler decide, and adds what it cannot know: trials that
people have paused, ranked or cancelled (`RequestHandler`, `TrialQueue`), trials that are about
to be paused and have to save first (`PauseCheckpoints`), trials that have ended without a
score, and what a failure costs.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from ray.tune.experiment import Trial
from ray.tune.schedulers import PopulationBasedTraining, TrialScheduler

from ditk_ray.record.record import SweepRecord
from ditk_ray.record.sweep_folder import Action, Answer, Request, give_answer, waiting_requests
from ditk_ray.search.schedulers import base_of
from ditk_ray.sweep.trials import NotPickled, TrialGenerator, has_score
from ditk_ray.trial.reports import CANCEL_FILE, SAVE_FILE, SAVED

Controller = Any

_LOOK_SECONDS = 0.5

_YET_TO_COME = SimpleNamespace(status=Trial.PENDING)
"""Stands for the trials that are still to be made, for schedulers that take turns with them."""

PATIENCE = 5
"""For how many evaluations it is waited: a trial is some ahead of its reports."""


@dataclass
class TrialQueue:
    """Priorities, the trials that people hold, and those that wait for a place; all by name.

    Higher priorities go first. A trial that is held is paused until it is released; one that
    waits was paused, but not by its scheduler, and comes before new trials.
    """

    priorities: dict[str, int] = field(default_factory=dict)
    held: set[str] = field(default_factory=set)
    waiting: list[str] = field(default_factory=list)

    def priority(self, trial: str) -> int:
        return self.priorities.get(trial, 0)

    def wait(self, trial: str) -> None:
        if trial not in self.waiting:
            self.waiting.append(trial)

    def took_place(self, trial: str) -> None:
        if trial in self.waiting:
            self.waiting.remove(trial)

    def forget(self, trial: str) -> None:
        self.held.discard(trial)
        self.took_place(trial)

    def is_set_aside(self, trial: str) -> bool:
        """Say whether it is not for the scheduler to choose: held, or waiting here."""
        return trial in self.held or trial in self.waiting

    def next_waiting(self, paused: Collection[str]) -> str | None:
        """Return who is next of those that wait and are really paused by now."""
        return max(self._ready(paused), key=self.priority, default=None)

    def must_give_way(self, trial: str, running: Iterable[str], paused: Collection[str]) -> bool:
        """Say whether a running trial has to be paused now.

        It has to if it is held, or if its place is needed: more trials of a higher priority
        wait than there are running ones that rank lower, or are giving way already.
        """
        if trial in self.held:
            return True
        own = self.priority(trial)
        better = sum(self.priority(one) > own for one in self._ready(paused))
        others = [one for one in running if one != trial]
        sooner = sum(self.priority(one) < own or self.is_set_aside(one) for one in others)
        return better > sooner

    def _ready(self, paused: Collection[str]) -> list[str]:
        return [trial for trial in self.waiting if trial in paused and trial not in self.held]


@dataclass
class PauseCheckpoints:
    """Asks trials that are about to be paused for a checkpoint of their next evaluation."""

    folder: Path
    has_checkpoints: bool
    _waited: dict[str, int] = field(default_factory=dict)

    def must_wait(self, trial: str, result: Mapping[str, Any]) -> bool:
        """Say whether a pause has to wait for an evaluation that is saved; asks for one."""
        waited = self._waited.get(trial, 0)
        if self.has_checkpoints and not result.get(SAVED) and waited < PATIENCE:
            with contextlib.suppress(OSError):  # no room for a checkpoint either
                (self.folder / trial / SAVE_FILE).touch()
                self._waited[trial] = waited + 1
                return True
        self.forget(trial)
        return False

    def forget(self, trial: str) -> None:
        """Note that a trial is not about to be paused, or will not be waited for."""
        if self._waited.pop(trial, None) is not None:
            with contextlib.suppress(OSError):
                (self.folder / trial / SAVE_FILE).unlink(missing_ok=True)


@dataclass(frozen=True)
class RequestHandler:
    """Answers requests on Tune's event loop, where nothing else happens meanwhile."""

    folder: Path
    record: SweepRecord
    queue: TrialQueue
    has_checkpoints: bool
    interrupt: Callable[[], None]

    def look(self, controller: Controller) -> None:
        """Answer all that was asked since the last time; a disk that fails is looked at later."""
        with contextlib.suppress(OSError):
            for path, request in waiting_requests(self.folder):
                give_answer(path, self._answer(request, controller))

    def _answer(self, request: Request, controller: Controller) -> Answer:
        if request.trial is None:
            if request.action is not Action.CANCEL:
                return Answer(False, f"{request.action} needs a trial")
            self.interrupt()
            return Answer(True, "the sweep is being stopped")
        trial = next((one for one in controller.get_trials() if str(one) == request.trial), None)
        if trial is None or trial.is_finished():
            return Answer(False, f"{request.trial} has ended")
        if request.action is Action.CANCEL:
            return self._cancel(trial, controller)
        if request.action is Action.PAUSE:
            message = self._pause(request.trial, trial.status)
        else:
            message = self._change(request.trial, request)
        known = self.record.trials.get(request.trial)
        if known is not None:
            known.is_held = request.trial in self.queue.held
            known.priority = self.queue.priority(request.trial)
        return Answer(True, message)

    def _pause(self, name: str, status: str) -> str:
        if name in self.queue.held:
            return f"{name} is paused already"
        self.queue.held.add(name)
        if status == Trial.PAUSED:
            return f"{name} stays paused"
        anew = "" if self.has_checkpoints else "; checkpoints are off: it will restart from scratch"
        return f"{name} is paused at its next evaluation{anew}"

    def _change(self, name: str, request: Request) -> str:
        if request.priority is not None or request.action is Action.PRIORITY:
            self.queue.priorities[name] = request.priority or 0
        if request.action is Action.PRIORITY:
            return f"{name} has priority {self.queue.priority(name)}"
        when = " when it has a place" if name in self.queue.held else ""
        self.queue.held.discard(name)
        return f"{name} continues{when}"

    def _cancel(self, trial: Trial, controller: Controller) -> Answer:
        name = str(trial)
        if trial.status == Trial.RUNNING:
            # Its actor waits for the next evaluation and hears nothing else; it sees a file.
            (self.folder / name).mkdir(exist_ok=True)
            (self.folder / name / CANCEL_FILE).touch()
            return Answer(True, f"{name} is being stopped")
        controller.stop_trial(trial)
        return Answer(True, f"{name} is cancelled")


@dataclass(eq=False)
class ControlledScheduler(NotPickled, TrialScheduler):
    """Asks the inner scheduler, after those who come before it.

    `look` is called about twice a second with Tune's controller, between events, `failed`
    for every failure that reached Tune, before the trial is started again, and `added` for
    every trial that the inner scheduler has just been given. `pause_checkpoints` delays a pause
    until the trial has a checkpoint.
    """

    inner: TrialScheduler
    queue: TrialQueue
    generator: TrialGenerator
    look: Callable[[Controller], None]
    failed: Callable[[Trial], None]
    added: Callable[[Trial], None]
    pause_checkpoints: PauseCheckpoints
    _next_look: float = 0.0
    _paused: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.generator.must_wait = lambda: self.queue.next_waiting(self._paused) is not None

    @property
    def metric(self) -> Any:
        return self.inner.metric

    @property
    def supports_buffered_results(self) -> bool:
        """Never: a decision is about the last evaluation."""
        return False

    def set_search_properties(self, metric: str | None, mode: str | None, **spec: Any) -> bool:
        return bool(self.inner.set_search_properties(metric, mode, **spec))

    def debug_string(self) -> str:
        return str(self.inner.debug_string())

    def on_trial_add(self, tune_controller: Controller, trial: Trial) -> None:
        self.inner.on_trial_add(tune_controller, trial)
        self.added(trial)

    def on_trial_error(self, tune_controller: Controller, trial: Trial) -> None:
        self.failed(trial)
        self.inner.on_trial_error(tune_controller, trial)

    def on_trial_result(
        self, tune_controller: Controller, trial: Trial, result: dict[str, Any]
    ) -> str:
        view = self._with_those_to_come(tune_controller)
        decision: str = self.inner.on_trial_result(view, trial, result)
        if decision != TrialScheduler.CONTINUE:
            return decision
        self._paused = _in_state(tune_controller, Trial.PAUSED)
        running = _in_state(tune_controller, Trial.RUNNING)
        if not self.queue.must_give_way(str(trial), running, self._paused):
            self.pause_checkpoints.forget(str(trial))
        elif not self.pause_checkpoints.must_wait(str(trial), result):
            self.queue.wait(str(trial))
            return str(TrialScheduler.PAUSE)
        return decision

    def on_trial_complete(
        self, tune_controller: Controller, trial: Trial, result: Mapping[str, Any]
    ) -> None:
        """Pass on an end; one without a score is a failure to who compares scores."""
        self.queue.forget(str(trial))
        if has_score(result):
            self.inner.on_trial_complete(tune_controller, trial, result)
        else:
            self.inner.on_trial_error(tune_controller, trial)

    def on_trial_remove(self, tune_controller: Controller, trial: Trial) -> None:
        self.queue.forget(str(trial))
        self.inner.on_trial_remove(tune_controller, trial)

    def choose_trial_to_run(self, tune_controller: Controller) -> Trial | None:
        """Return who is next: those that were displaced or released, then the inner's choice."""
        if time.monotonic() >= self._next_look:
            self._next_look = time.monotonic() + _LOOK_SECONDS
            self.look(tune_controller)
        self._paused = _in_state(tune_controller, Trial.PAUSED)
        is_full = self.generator.is_full
        name = None if is_full else self.queue.next_waiting(self._paused)
        if name is not None:
            self.queue.took_place(name)
            return next(one for one in tune_controller.get_live_trials() if str(one) == name)
        chosen = self._inner_choice(tune_controller)
        if is_full and chosen is not None and chosen.status != Trial.PENDING:
            return None  # only one that is pending has its place already
        return chosen

    def _inner_choice(self, controller: Controller) -> Trial | None:
        if not self.queue.held and not self.queue.waiting:
            return self.inner.choose_trial_to_run(controller)
        chosen = self.inner.choose_trial_to_run(_View(controller, self._is_free))
        # Some schedulers have lists of their own.
        return chosen if chosen is not None and self._is_free(chosen) else None

    def _is_free(self, trial: Trial) -> bool:
        return not self.queue.is_set_aside(str(trial))

    def _with_those_to_come(self, controller: Controller) -> Controller:
        if isinstance(base_of(self.inner), PopulationBasedTraining) and self.generator.has_more:
            return _View(controller, more=(_YET_TO_COME,))
        return controller


@dataclass(frozen=True)
class _View:
    """Tune's controller with some trials left out, and others that are not there."""

    controller: Controller
    shows: Callable[[Any], bool] = lambda trial: True
    more: tuple[Any, ...] = ()

    def get_trials(self) -> list[Any]:
        return [*filter(self.shows, self.controller.get_trials()), *self.more]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.controller, name)


def _in_state(controller: Controller, status: str) -> set[str]:
    return {str(trial) for trial in controller.get_live_trials() if trial.status == status}
