"""One seed of an attempt that is trained as a DIJob."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ditk_ray.config.quantities import show_seconds
from ditk_ray.kube.dijobs import RUNNING
from ditk_ray.kube.job_events import Finished, Gone, JobEvent, Message, Phase, Waiting
from ditk_ray.kube.marked_lines import PodDiverged, PodEnd, PodError, PodEvaluation, PodResult
from ditk_ray.trial.failures import FailureKind
from ditk_ray.trial.files import RESULT_FILE
from ditk_ray.trial.result import UnreadableResultError, read_result
from ditk_ray.trial.seed import Metrics, Seed

START_SECONDS = 900.0
"""How long a job may take until its pods run, if nobody says otherwise."""

_BEGINS_ANEW = ("Restarting", "Rescheduling")
"""The phases in which the operator replaces pods."""

_log = logging.getLogger(__name__)


class JobSeed(Seed):
    """A seed whose training is a DIJob called `job`; its events are brought by its owner.

    Its log is read from the beginning, so that of the evaluations the first `reported`, by
    the pods in `evaluators`, are known already when the job was adopted. `shared_result` is
    where the job leaves its result on a volume that may be seen from here.
    """

    def __init__(
        self,
        seed: int,
        job: str,
        log: Path,
        kept_result: Path,
        reported: int = 0,
        shared_result: Path | None = None,
        evaluators: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(seed, log, kept_result)
        self.job = job
        self.is_over = False
        """Whether there is nothing more to ask for."""
        self._reported = reported
        self._shared_result = shared_result
        self._told: Path | None = None
        self._heard_of: set[tuple[str, int]] = set()
        self.evaluators = dict(evaluators or {})
        """The pod that evaluates, with the uid by which it is that very pod.

        Of a job of several tasks the first that does counts; others may end before it."""
        self._returned: Metrics | None = None
        self._runs = False
        self._waits_for = ""
        self._begin()

    def take(self, events: Iterable[JobEvent]) -> None:
        """Take what has happened to the job."""
        for event in events:
            self._take(event)

    def lose(self, why: str) -> None:
        """Take note that nothing more can be heard of the job."""
        self.is_over = True
        self._fail(f"the job {self.job} is out of sight: {why}", FailureKind.LOST)

    def seconds_to_stall(self, startup: float | None, between: float | None) -> float | None:
        """Return how long it may still be silent; a job has to start some time in any case."""
        if self._computes and not self._runs:
            return self._heard + (startup or START_SECONDS) - time.monotonic()
        return super().seconds_to_stall(startup, between)

    def note_stall(self, startup: float | None, between: float | None) -> None:
        """Count it as failed, with what its pods wait for."""
        if self._runs:
            super().note_stall(startup, between)
            return
        reason = self._waits_for or "nothing says why; is DI-orchestrator running?"
        limit = show_seconds(startup or START_SECONDS)
        what = f"the job {self.job} did not start within {limit}: {reason}"
        self._fail(what, FailureKind.NOT_STARTED)

    def _take(self, event: JobEvent) -> None:
        if isinstance(event, Phase):
            self._note_phase(event.phase)
        elif isinstance(event, Waiting):
            self._waits_for = event.text
        elif isinstance(event, Message):
            self._take_message(event)
        elif isinstance(event, Gone):
            self._note_gone()
        elif isinstance(event, Finished):
            self._note_finished(event)

    def _note_phase(self, phase: str) -> None:
        if phase == RUNNING:
            self._note_running()
        elif phase in _BEGINS_ANEW and self.evaluations and not self.has_ended:
            self._note_replaced()

    def _note_replaced(self) -> None:
        # A new pod trains from the beginning, and its evaluations would follow these.
        self._fail(f"a pod of the job {self.job} was taken away", FailureKind.LOST)

    def _note_running(self) -> None:
        if not self._runs:
            self._runs = True
            self._heard = time.monotonic()

    def _take_message(self, event: Message) -> None:
        known = (event.uid, event.message.n)
        if known in self._heard_of:
            return  # the office was lost, and reads the log again
        self._heard_of.add(known)
        self._note_running()
        self._heard = time.monotonic()
        said = event.message
        if isinstance(said, PodDiverged):
            self.has_diverged = True
        elif isinstance(said, PodError):
            self._fail(said.message, said.failure)
        elif isinstance(said, PodEvaluation) and not self.evaluators:
            self.evaluators[event.pod] = event.uid
            self._note_evaluation(1, dict(said.metrics))
        elif event.pod in self.evaluators:
            self._take_from_evaluator(event)
        elif not self.evaluators and isinstance(said, PodResult):
            self._told = self._keep(said.data)
        elif not self.evaluators and isinstance(said, PodEnd):
            self._returned = dict(said.returned)  # another pod may be the one that evaluates

    def _take_from_evaluator(self, event: Message) -> None:
        said = event.message
        # The phases of a pod's replacement pass unseen while the API server is away.
        if self.evaluators[event.pod] != event.uid:
            self._note_replaced()
        elif isinstance(said, PodEvaluation):
            self._note_evaluation(self.evaluations + 1, dict(said.metrics))
        elif isinstance(said, PodResult):
            self._told = self._keep(said.data)
        elif isinstance(said, PodEnd):
            self._end(dict(said.returned))

    def _note_evaluation(self, number: int, metrics: Metrics) -> None:
        super()._note_evaluation(number, metrics)
        if number <= self._reported:
            self.at(number)

    def _note_gone(self) -> None:
        self.is_over = True
        if not self.has_ended:
            self._fail(f"the job {self.job} was deleted by somebody else", FailureKind.LOST)

    def _note_finished(self, event: Finished) -> None:
        self.is_over = True
        if self.has_ended:
            return
        if not event.succeeded:
            self._fail(event.text, event.kind or FailureKind.BUG)
        elif self._returned is not None and not self.evaluations:
            self._end(self._returned)
        elif self._shared_value() is not None or (self.evaluations and not event.text):
            self._end({})
        elif event.text:
            self._fail(f"the job {self.job} succeeded, but {event.text}", FailureKind.LOST)
        else:
            what = (
                f"the job {self.job} succeeded without a word: its container has to run the script"
            )
            self._fail(what, FailureKind.BUG)

    def _end(self, returned: Metrics) -> None:
        shared = self._shared_value()
        if self._told is None:
            result = self._shared_result if shared is not None else None
        else:
            result = self._told
            if shared is not None and shared != _value(self._told):
                self._say(f"{self._shared_result} differs from the result in the log, which counts")
        if not returned and not self.evaluations and result is not None:
            returned = _numbers(_value(result))  # a main file of the user's that says nothing else
        self._note_end(returned, result)

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
    """Return what was pickled in a file; None if it is not there or cannot be read."""
    try:
        return read_result(path)
    except UnreadableResultError:
        return None


def _numbers(value: Any) -> Metrics:
    if not isinstance(value, dict):
        return {}
    numbers = (int, float)
    return {
        str(key): float(item)
        for key, item in value.items()
        if isinstance(item, numbers) and not isinstance(item, bool)
    }
