"""Where a running sweep takes requests: pause, continue, cancel, rank."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ray.tune.experiment import Trial

from ditk_ray.sweep.places import Places
from ditk_ray.tracking.record import SweepRecord
from ditk_ray.tracking.requests import Action, Answer, Request, give_answer, waiting_requests
from ditk_ray.trial.files import CANCEL_FILE

_OVER = (Trial.TERMINATED, Trial.ERROR)


class Desk:
    """Answers requests on Tune's event loop, where nothing else happens meanwhile."""

    def __init__(
        self,
        folder: Path,
        record: SweepRecord,
        places: Places,
        has_checkpoints: bool,
        interrupt: Callable[[], None],
    ) -> None:
        self._folder = folder
        self._record = record
        self._places = places
        self._has_checkpoints = has_checkpoints
        self._interrupt = interrupt

    def look(self, controller: Any) -> None:
        """Answer all that was asked since the last time; a disk that fails is looked at later."""
        with contextlib.suppress(OSError):
            for path, request in waiting_requests(self._folder):
                give_answer(path, self._answer(request, controller))

    def _answer(self, request: Request, controller: Any) -> Answer:
        if request.trial is None:
            if request.action is not Action.CANCEL:
                return Answer(False, f"{request.action} needs a trial")
            self._interrupt()
            return Answer(True, "the sweep is being stopped")
        trial = next((one for one in controller.get_trials() if str(one) == request.trial), None)
        if trial is None or trial.status in _OVER:
            return Answer(False, f"{request.trial} has ended")
        if request.action is Action.PAUSE:
            return self._pause(str(trial), trial.status)
        if request.action is Action.CONTINUE:
            return self._continue(str(trial), request.priority)
        if request.action is Action.PRIORITY:
            return self._rank(str(trial), request.priority or 0)
        return self._cancel(trial, controller)

    def _pause(self, name: str, status: str) -> Answer:
        if self._places.is_held(name):
            return Answer(True, f"{name} is paused already")
        self._places.hold(name)
        self._note(name)
        if status == Trial.PAUSED:
            return Answer(True, f"{name} stays paused")
        anew = "" if self._has_checkpoints else "; checkpoints are off: it will start anew later"
        return Answer(True, f"{name} is paused at its next evaluation{anew}")

    def _continue(self, name: str, priority: int | None) -> Answer:
        if priority is not None:
            self._places.set_priority(name, priority)
        was_held = self._places.is_held(name)
        self._places.release(name)
        self._note(name)
        return Answer(True, f"{name} goes on{' when it has a place' if was_held else ''}")

    def _rank(self, name: str, priority: int) -> Answer:
        self._places.set_priority(name, priority)
        self._note(name)
        return Answer(True, f"{name} has priority {priority}")

    def _cancel(self, trial: Trial, controller: Any) -> Answer:
        name = str(trial)
        if trial.status == Trial.RUNNING:
            # Its actor waits for the next evaluation and hears nothing else; it sees a file.
            (self._folder / name).mkdir(exist_ok=True)
            (self._folder / name / CANCEL_FILE).touch()
            return Answer(True, f"{name} is being stopped")
        controller.stop_trial(trial)
        return Answer(True, f"{name} is cancelled")

    def _note(self, name: str) -> None:
        record = self._record.trials.get(name)
        if record is not None:
            record.is_held = self._places.is_held(name)
            record.priority = self._places.priority(name)
