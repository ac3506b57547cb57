"""One seed of an attempt: what is known of its training by the events of its run."""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import Any

from ditk_ray.config.terms import FailureKind
from ditk_ray.errors import TrialFailedError
from ditk_ray.execution.executor import (
    Ended,
    Evaluated,
    Event,
    Executor,
    Metrics,
    Run,
    Started,
    Waiting,
)
from ditk_ray.trial.checkpoints import SeedProgress
from ditk_ray.trial.plan import SeedTask
from ditk_ray.trial.result import UnreadableResultError, keep_result, read_result
from ditk_ray.util.units import show_seconds

_log = logging.getLogger(__name__)

START_SECONDS = 900.0
"""How long a run may wait for its place by default."""


class Seed:
    """A seed's training, which is started at its first turn.

    `evaluations` counts those of earlier attempts that it resumes from. A seed that had
    ended in one of those is never started. The first `reported` evaluations are known already:
    a run that was adopted reports them again.
    """

    def __init__(
        self,
        task: SeedTask,
        kept_result: Path,
        progress: SeedProgress | None = None,
        reported: int = 0,
    ) -> None:
        progress = progress or SeedProgress()
        self.task = task
        self.seed = task.seed
        self.run: Run | None = None
        self.evaluations = task.evaluations
        self.has_ended = progress.ended
        self.has_diverged = False
        self.failure: TrialFailedError | None = None
        self.returned: Metrics = dict(progress.returned)
        self.last: Metrics = dict(progress.evaluation)
        self._result = Path(progress.result) if progress.result else None
        self._kept_result = kept_result
        self._reported = reported
        self._pending: dict[int, Metrics] = {}
        self._saved: set[int] = set()
        self._computes = False
        self._has_started = False
        self._has_evaluated = False
        self._is_over = False
        self._waits_for = ""
        self._heard = 0.0

    @property
    def live_run(self) -> Run | None:
        """Its run, if events may still come."""
        return None if self._is_over else self.run

    def follow(self, run: Run) -> None:
        self.run = run
        self._computes = True
        self._heard = time.monotonic()

    def take_turn(self, executor: Executor[SeedTask]) -> None:
        """Compute: start, or resume where `wait_turn` has paused it."""
        if self.run is None:
            self.follow(executor.start(self.task))
        elif not self._computes:
            self.follow(self.run)
            self.run.resume()

    def wait_turn(self) -> None:
        if self._computes and self.run is not None:
            self.run.pause()
        self._computes = False

    def stop(self) -> bool:
        """End its run; returns False if that is out of reach."""
        self._computes = False
        return self.run is None or self.run.stop()

    def take(self, event: Event) -> None:
        if isinstance(event, Waiting):
            self._waits_for = event.reason
            return
        self._heard = time.monotonic()
        if isinstance(event, Started):
            self._has_started = True
        elif isinstance(event, Evaluated):
            self._note_evaluation(event)
        elif isinstance(event, Ended):
            self._note_end(event)

    def progress_at(self, number: int) -> SeedProgress:
        """Return how far it had come with the evaluation that was asked for last."""
        if not self.has_ended or self.evaluations > number:
            return SeedProgress(self.last)
        result = str(self._result) if self._result else None
        return SeedProgress(self.last, True, self.returned, result)

    def at(self, number: int) -> Metrics:
        """Return its evaluation of that number, or its last if it has ended before."""
        self.last = self._pending.get(number, self.last)
        self._pending = {key: row for key, row in self._pending.items() if key > number}
        return self.last

    def has_saved(self, number: int) -> bool:
        """Say whether a checkpoint at that number has all that this seed needs of it."""
        return number in self._saved or (self.has_ended and self.evaluations < number)

    def seconds_to_stall(self, startup: float | None, between: float | None) -> float | None:
        """Return how long it may still be silent; None if for ever, or if it is not its turn."""
        limit = self._silence(startup, between)
        if limit is None or not self._computes:
            return None
        return self._heard + limit - time.monotonic()

    def note_stall(self, startup: float | None, between: float | None) -> None:
        limit = show_seconds(self._silence(startup, between) or 0.0)
        if not self._has_started:
            what = f"{self.run} did not start within {limit}: {self._waits_for}"
            self._fail(what, FailureKind.NOT_STARTED)
            return
        what = "next" if self._has_evaluated else "first"
        self._fail(f"no {what} evaluation within {limit}", FailureKind.STALL)

    def result_value(self) -> Any:
        """Return the value of what DI-engine pickled, if it is plain."""
        if self._result is None:
            return None
        try:
            return read_result(self._keep_result(self._result))
        except UnreadableResultError as error:
            return {"unreadable": str(error)}

    def _keep_result(self, result: Path) -> Path:
        try:
            if result != self._kept_result:
                keep_result(result, self._kept_result)
                self._result = self._kept_result
        except OSError as error:  # such as a full disk: the training is not to be repeated
            _log.warning("%s was not copied to %s: %s", result, self._kept_result, error)
            return result
        return self._kept_result

    def _silence(self, startup: float | None, between: float | None) -> float | None:
        if not self._has_started:
            return startup or START_SECONDS
        return between if self._has_evaluated else startup or between

    def _note_evaluation(self, event: Evaluated) -> None:
        self._has_evaluated = True
        self.evaluations = event.number
        self._pending[event.number] = event.metrics
        if event.is_saved:
            self._saved.add(event.number)
        if event.number <= self._reported:
            self.at(event.number)

    def _note_end(self, event: Ended) -> None:
        self._computes = False
        self._is_over = True
        if event.kind == "diverged":
            self.has_diverged = True
        elif event.kind == "failed":
            self._fail(event.error, event.failure)
        else:
            self._result, self.returned, self.has_ended = event.result, event.returned, True
            if not self.evaluations and not self.returned:
                self._fail("training ended without a single evaluation", FailureKind.BUG)

    def _fail(self, error: str, kind: str) -> None:
        self.failure = TrialFailedError(error, kind, str(self.task.log))
