"""The run of one task as a DIJob: what its events and its pods' messages amount to."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from ditk_ray.config.terms import FailureKind
from ditk_ray.dijob.gateway import Place
from ditk_ray.dijob.jobs import RUNNING
from ditk_ray.dijob.tracker import JobEvent, Message, Phase
from ditk_ray.execution.executor import (
    Ended,
    Evaluated,
    Event,
    Handle,
    Metrics,
    Run,
    Started,
    Waiting,
)
from ditk_ray.trial.outcome import RESULT_FILE, plain_numbers
from ditk_ray.trial.result import UnreadableResultError, read_result

_BEGINS_ANEW = ("Restarting", "Rescheduling")
"""The phases in which the operator replaces pods."""

_log = logging.getLogger(__name__)


class JobRun(Run):
    """A DIJob called `job`, which outlives its owner; what happens to it is brought by `take`.

    Its log is read from the beginning: of an adopted job all events come again. `evaluators` are
    the pods that were seen to evaluate. `shared_result` is where the job leaves its result on a
    volume that may be seen from here. `release` gives the job up, with how it ended.
    """

    def __init__(
        self,
        job: str,
        log: Path,
        release: Callable[[str, Ended | None], bool],
        shared_result: Path | None = None,
        evaluators: dict[str, str] | None = None,
    ) -> None:
        self.job = job
        self.log = log
        self.place = Place()
        """How far its events were heard."""
        self.ended: Ended | None = None
        self.evaluators = dict(evaluators or {})
        """The pod that evaluates, with the uid by which it is that very pod.

        Of a job of several tasks the first that does counts; others may end before it."""
        self._release = release
        self._shared_result = shared_result
        self._told: Path | None = None
        self._heard_of: set[tuple[str, int]] = set()
        self._evaluations = 0
        self._returned: Metrics | None = None
        self._has_started = False
        self._may_run = True  # as far as its pods and its phase say
        self._events: list[Event] = [Waiting("no reason reported; is DI-orchestrator running?")]

    def __str__(self) -> str:
        return f"the job {self.job}"

    @property
    def handle(self) -> Handle:
        return {"job": self.job, "pods": dict(self.evaluators)}

    def stop(self) -> bool:
        return self._release(self.job, None if self._may_run else self.ended)

    def take(self, happened: Iterable[JobEvent]) -> list[Event]:
        """Note what has happened to the job; return what that means for the run."""
        for event in happened:
            if self.ended is None:
                self._take(event)
        taken, self._events = self._events, []
        return taken

    def lose(self, why: str) -> list[Event]:
        self._fail(f"{self} can no longer be watched: {why}", FailureKind.LOST)
        return self.take(())

    def _take(self, event: JobEvent) -> None:
        if isinstance(event, Phase):
            self._note_phase(event.phase)
        elif isinstance(event, Waiting):
            self._events.append(event)
        elif isinstance(event, Message):
            self._take_message(event)
        else:
            self._note_ended(event)

    def _note_phase(self, phase: str) -> None:
        if phase == RUNNING:
            self._note_running()
        elif phase in _BEGINS_ANEW and self._evaluations:
            self._note_replaced()

    def _note_replaced(self) -> None:
        # A new pod trains from the beginning, and its evaluations would follow these.
        self._fail(f"a pod of {self} was taken away", FailureKind.LOST)

    def _note_running(self) -> None:
        if not self._has_started:
            self._has_started = True
            self._events.append(Started())

    def _take_message(self, message: Message) -> None:
        known = (message.uid, message.n)
        if known in self._heard_of:
            return  # the gateway was lost, and reads the log again
        self._heard_of.add(known)
        self._note_running()
        said = message.said
        self._may_run = self._may_run and not isinstance(said, Ended)
        if isinstance(said, Ended) and said.kind != "finished":
            self._end(said)
            return
        if isinstance(said, Evaluated) and not self.evaluators:
            self.evaluators[message.pod] = message.uid
        if self.evaluators and message.pod not in self.evaluators:
            return
        # The phases of a pod's replacement pass unseen while the API server is away.
        if self.evaluators.get(message.pod, message.uid) != message.uid:
            self._note_replaced()
        elif isinstance(said, Evaluated):
            self._evaluations += 1
            self._events.append(replace(said, number=self._evaluations))
        elif isinstance(said, bytes):
            self._told = self._keep(said)
        elif self.evaluators:
            self._finish(said.returned)
        else:
            self._returned = said.returned  # another pod may be the one that evaluates

    def _note_ended(self, event: Ended) -> None:
        self._may_run = False
        if event.kind != "finished":
            self._end(event)
        elif self._returned is not None and not self._evaluations:
            self._finish(self._returned)
        elif self._shared_value() is not None or (self._evaluations and not event.error):
            self._finish({})
        elif event.error:
            self._fail(f"{self} succeeded, but {event.error}", FailureKind.LOST)
        else:
            what = "succeeded but reported nothing; does its container run the generated script?"
            self._fail(f"{self} {what}", FailureKind.BUG)

    def _finish(self, returned: Metrics) -> None:
        shared = self._shared_value()
        if self._told is None:
            result = self._shared_result if shared is not None else None
        else:
            result = self._told
            if shared is not None and shared != _value(self._told):
                self._say(f"{self._shared_result} differs from the result in the log, which counts")
        if not returned and not self._evaluations and result is not None:
            # A main file of the user's may say nothing else.
            returned = _numbers(_value(result))
        self._end(Ended(returned=returned, result=result))

    def _fail(self, error: str, kind: FailureKind) -> None:
        self._end(Ended("failed", error=error, failure=kind))

    def _end(self, event: Ended) -> None:
        if self.ended is None:
            self.ended = event
            self._events.append(event)

    def _keep(self, data: bytes) -> Path | None:
        path = self.log.parent / RESULT_FILE
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        except OSError as error:
            _log.warning("%s cannot be written: %s", path, error)
            return None
        return path

    def _shared_value(self) -> Any:
        return None if self._shared_result is None else _value(self._shared_result)

    def _say(self, text: str) -> None:
        _log.warning("%s: %s", self.job, text)
        try:
            with self.log.open("a", encoding="utf-8") as file:
                file.write(f"[ditk-ray] {text}\n")
        except OSError as error:
            _log.warning("%s cannot be written: %s", self.log, error)


def _value(path: Path) -> Any:
    try:
        return read_result(path)
    except UnreadableResultError:
        return None


def _numbers(value: Any) -> Metrics:
    given = value if isinstance(value, dict) else {}
    return plain_numbers({key: each for key, each in given.items() if type(each) is not bool})
