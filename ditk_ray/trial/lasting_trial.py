"""A trial that outlasts its failures: attempted again as often as its budgets allow."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from ditk_ray.config.quantities import show_bytes
from ditk_ray.errors import (
    NeedsMemoryError,
    OutOfReachError,
    TrialFailedError,
    TrialTimeoutError,
)
from ditk_ray.trial.attempt_run import POLL_SECONDS, AttemptRun
from ditk_ray.trial.failure_log import Failure, FailureLog
from ditk_ray.trial.failures import FailureKind, is_disk_full
from ditk_ray.trial.files import CANCEL_FILE
from ditk_ray.trial.report_keys import ATTEMPT, ENDED, FAILURE, FAILURES, REPORT
from ditk_ray.trial.seed import Metrics
from ditk_ray.trial.spec import TrialPlan

BACKOFF_SECONDS = 2.0
"""How long a trial waits for room on the disk at first; twice as long each further time."""


class LastingTrial:
    """Runs a trial's attempts one after the other; `start` starts the next one.

    Failures of the training are dealt with here; its last report says of which it ended.
    What `next_report` raises is trouble with the node itself, a `NeedsMemoryError`, or an
    `OutOfReachError`: the attempt is neither over nor failed, only out of sight.
    """

    def __init__(self, plan: TrialPlan, folder: Path, start: Callable[[], AttemptRun]) -> None:
        self._plan = plan
        self._folder = folder
        self._start = start
        self._log = FailureLog(folder)
        self._run: AttemptRun | None = None
        self._attempt = 0
        self._reports = 0

    def next_report(self) -> Metrics:
        """Return the next report of the trial, after as many attempts as it takes.

        It holds the failures so far as `FAILURES`, if there are any.
        """
        while True:
            try:
                return self._noted(self._running().next_report())
            except OutOfReachError:
                raise
            except TrialTimeoutError as error:
                return self._fail(self._note(str(error), error.kind, error.log))
            except TrialFailedError as error:
                failure = self._note(str(error), error.kind, error.log)
            except OSError as error:
                if not is_disk_full(error):
                    raise
                failure = self._note(f"OSError: {error}", FailureKind.DISK_FULL)
            except Exception as error:
                failure = self._note(f"{type(error).__name__}: {error}", FailureKind.BUG)
            if not self._log.allows(failure.kind, self._plan.retries):
                return self._fail(failure)
            self._prepare_retry(failure)

    def close(self) -> None:
        """End what is still running, and everything below it."""
        if self._run is not None:
            self._run.close()
            self._run = None

    def _running(self) -> AttemptRun:
        if self._run is None:
            self._run = self._start()
            self._attempt, self._reports = self._run.attempt, self._run.reports
        return self._run

    def _noted(self, report: Metrics) -> Metrics:
        self._reports = report[REPORT]
        if ENDED in report:
            self.close()
        return self._with_failures(report)

    def _with_failures(self, report: Metrics) -> Metrics:
        if not self._log.failures:
            return report
        return {**report, FAILURES: [failure.as_dict() for failure in self._log.failures]}

    def _note(self, error: str, kind: str, log: str | None = None) -> Failure:
        self.close()
        failure = Failure(str(kind), error, self._attempt, log)
        self._log.add(failure)
        return failure

    def _fail(self, failure: Failure) -> Metrics:
        told = {ENDED: "failed", FAILURE: failure.as_dict()}
        return self._with_failures({**told, ATTEMPT: self._attempt, REPORT: self._reports + 1})

    def _prepare_retry(self, failure: Failure) -> None:
        """Wait for what a retry needs; raises `NeedsMemoryError` if it needs another place."""
        resources = self._plan.resources
        # What a DIJob may have of memory is not Ray's to give.
        allowed = 0 if self._plan.dijob else resources.max_memory or 0
        if failure.kind == FailureKind.OUT_OF_MEMORY and (resources.memory or 0) < allowed:
            what = f"{failure.error}; it is tried again with {show_bytes(allowed)}"
            raise NeedsMemoryError(what, allowed)
        if failure.kind == FailureKind.DISK_FULL:
            count = sum(item.kind == FailureKind.DISK_FULL for item in self._log.failures)
            self._wait(BACKOFF_SECONDS * 2 ** (count - 1))

    def _wait(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until and not (self._folder / CANCEL_FILE).exists():
            time.sleep(POLL_SECONDS)
