"""One seed of an attempt: what it has told so far, wherever it is trained."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from ditk_ray.config.quantities import show_seconds
from ditk_ray.errors import TrialFailedError
from ditk_ray.trial.checkpoints import SeedProgress
from ditk_ray.trial.failures import FailureKind
from ditk_ray.trial.result import UnreadableResultError, keep_result, read_result

Metrics = dict[str, Any]


class Seed:
    """What is known of a seed's training; the parts that only a backend knows are its own.

    `evaluations` counts those of earlier attempts that it goes on from. A seed that had
    ended in one of those is never started.
    """

    def __init__(
        self,
        seed: int,
        log: Path,
        kept_result: Path,
        evaluations: int = 0,
        progress: SeedProgress | None = None,
    ) -> None:
        progress = progress or SeedProgress()
        self.seed = seed
        self.log = log
        self.evaluations = evaluations
        self.has_ended = progress.ended
        self.has_diverged = False
        self.failure: TrialFailedError | None = None
        self.returned: Metrics = dict(progress.returned)
        self.last: Metrics = dict(progress.evaluation)
        self._result = Path(progress.result) if progress.result else None
        self._kept_result = kept_result
        self._pending: dict[int, Metrics] = {}
        self._computes = False
        self._has_told = False
        self._heard = 0.0

    def progress_at(self, number: int) -> SeedProgress:
        """Return how far it had come with the evaluation that was asked for last."""
        if not self.has_ended or self.evaluations > number:
            return SeedProgress(self.last)
        result = str(self._result) if self._result else None
        return SeedProgress(self.last, True, self.returned, result)

    def at(self, number: int) -> Metrics:
        """Return its evaluation of that number, or its last if it has ended before."""
        row = self._pending.get(number, self.last)
        self._pending = {key: told for key, told in self._pending.items() if key > number}
        self.last = row
        return row

    def seconds_to_stall(self, startup: float | None, between: float | None) -> float | None:
        """Return how long it may still be silent; None if for ever, or if it is not its turn."""
        limit = between if self._has_told else startup or between
        if limit is None or not self._computes:
            return None
        return self._heard + limit - time.monotonic()

    def note_stall(self, startup: float | None, between: float | None) -> None:
        """Count it as failed for its silence."""
        limit = (between if self._has_told else startup or between) or 0.0
        what = "next" if self._has_told else "first"
        self._fail(f"no {what} evaluation within {show_seconds(limit)}", FailureKind.STALL)

    def result_value(self) -> Any:
        """Return the value of what DI-engine pickled, if it is plain."""
        if self._result is None:
            return None
        try:
            if self._result != self._kept_result:
                keep_result(self._result, self._kept_result)
                self._result = self._kept_result
            return read_result(self._kept_result)
        except UnreadableResultError as error:
            return {"unreadable": str(error)}

    def stop(self) -> None:
        """End its training, and everything below it."""
        self._computes = False

    def _begin(self) -> None:
        self._computes = True
        self._heard = time.monotonic()

    def _note_evaluation(self, number: int, metrics: Metrics) -> None:
        self._has_told = True
        self.evaluations = number
        self._pending[number] = metrics

    def _note_end(self, returned: Metrics, result: Path | None) -> None:
        self._result = result
        self.returned = returned
        self.stop()
        self.has_ended = True
        if not self.evaluations and not self.returned:
            self._fail("training ended without a single evaluation", FailureKind.BUG)

    def _fail(self, error: str, kind: str) -> None:
        """Keep the first failure: what follows is its consequence."""
        if self.failure is None and not self.has_diverged:
            self.failure = TrialFailedError(error, kind, str(self.log))
