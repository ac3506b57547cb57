"""A DI-engine trial as a Ray Tune trainable, which is tried again after failures.

The actor stays light: it imports neither torch nor DI-engine, and is used for
one trial after the other.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import ray
from ray import tune

from ditk_ray.config.terms import FailureKind
from ditk_ray.errors import (
    NeedsMemoryError,
    OutOfReachError,
    TrialFailedError,
    TrialTimeoutError,
)
from ditk_ray.execution.executor import Metrics
from ditk_ray.execution.pickled_call import Pickled
from ditk_ray.trial.attempt import POLL_SECONDS, Attempt, start_attempt
from ditk_ray.trial.checkpoints import CheckpointStore
from ditk_ray.trial.outcome import is_disk_full
from ditk_ray.trial.plan import TrialPlan
from ditk_ray.trial.reports import (
    ATTEMPT,
    CANCEL_FILE,
    ENDED,
    FAILURE,
    FAILURES,
    METRICS_FILE,
    REPORT,
    Failure,
    FailureLog,
    read_reports,
)
from ditk_ray.util.units import show_bytes

BACKOFF_SECONDS = 2.0
"""How long a trial waits for room on the disk at first; twice as long each further time."""

_ENDED_BY_ITSELF = ("training", "nan", "cancelled")


class TrialTrainable(tune.Trainable):
    """Runs trials where the plan's executor has them run; a step is an evaluation.

    A trial resumes from its own newest checkpoint, whoever ended the actor that ran it
    before. Tune's checkpoints are copies of those, made when Tune asks for them.
    """

    def setup(self, config: dict[str, Any], plan: Pickled | None = None) -> None:
        if plan is None:
            raise ValueError("a plan has to be bound with tune.with_parameters")
        self._plan: TrialPlan = plan.unpack()
        self._drawn = config
        self._trial: RetryingTrial | None = None
        self._may_have_ended = True

    def step(self) -> Metrics:
        report = self._report_of_the_end() if self._trial is None else None
        if report is None:
            report = self._running().next_report()
        self._iteration = report[REPORT] - 1  # Tune adds one; it counts as the trial does
        metrics = {key: value for key, value in report.items() if key != REPORT}
        return {**metrics, tune.result.DONE: ENDED in report}

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Take over another trial, after ending whatever is left of this one."""
        self._close()
        self._drawn = new_config
        self._may_have_ended = True
        return True

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        self._store.copy_latest(Path(checkpoint_dir))

    def load_checkpoint(self, checkpoint: Any) -> None:
        """Have the next attempt resume from the checkpoint in this folder, or a newer own one."""
        self._close()
        before = self._store.latest()
        if self._store.adopt(Path(str(checkpoint)), self._drawn) != before:
            self._may_have_ended = False

    def cleanup(self) -> None:
        self._close()
        self._plan.executor.close()

    @property
    def _folder(self) -> Path:
        return self._plan.sweep_folder / str(self.trial_name)

    @property
    def _store(self) -> CheckpointStore:
        return CheckpointStore(self._folder)

    def _running(self) -> RetryingTrial:
        if self._trial is None:
            plan = self._plan
            # A scheduler may have given it others.
            if self.trial_resources is not None and plan.executor.actor is None:
                given = plan.job.resources.as_given(self.trial_resources.required_resources)
                plan = replace(plan, job=replace(plan.job, resources=given))
            gpu_ids = [str(number) for number in ray.get_gpu_ids()]
            start = partial(start_attempt, plan, self._drawn, self._folder, gpu_ids)
            self._trial = RetryingTrial(plan, self._folder, start)
        return self._trial

    def _report_of_the_end(self) -> Metrics | None:
        """Return the last report again of a trial that has ended, unknown to the driver."""
        rows = read_reports(self._folder / METRICS_FILE) if self._may_have_ended else []
        if not rows or rows[-1].get(ENDED) not in _ENDED_BY_ITSELF:
            return None
        last, metric = rows[-1], self._plan.job.metric
        return {**last, metric: math.nan} if last.get(ENDED) == "nan" else last

    def _close(self) -> None:
        if self._trial is not None:
            self._trial.close()
            self._trial = None


class RetryingTrial:
    """Runs a trial's attempts one after the other; `start` starts the next one.

    Failures of the training are dealt with here; its last report says of which it ended.
    What `next_report` raises is trouble with the node itself, a `NeedsMemoryError`, or an
    `OutOfReachError`: the attempt is neither over nor failed, only out of sight.
    """

    def __init__(self, plan: TrialPlan, folder: Path, start: Callable[[], Attempt]) -> None:
        self._plan = plan
        self._folder = folder
        self._start = start
        self._log = FailureLog(folder)
        self._run: Attempt | None = None
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
            if not self._log.allows(failure.kind, self._plan.job.retries):
                return self._fail(failure)
            self._prepare_retry(failure)

    def close(self) -> None:
        if self._run is not None:
            self._run.close()
            self._run = None

    def _running(self) -> Attempt:
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
        return {**report, FAILURES: [vars(failure) for failure in self._log.failures]}

    def _note(self, error: str, kind: str, log: str | None = None) -> Failure:
        self.close()
        failure = Failure(str(kind), error, self._attempt, log)
        self._log.add(failure)
        return failure

    def _fail(self, failure: Failure) -> Metrics:
        report = {ENDED: "failed", FAILURE: vars(failure), ATTEMPT: self._attempt}
        return self._with_failures({**report, REPORT: self._reports + 1})

    def _prepare_retry(self, failure: Failure) -> None:
        """Wait for what a retry needs; raises `NeedsMemoryError` if it needs another place."""
        resources = self._plan.job.resources
        allowed = resources.max_memory or 0
        if failure.kind == FailureKind.OUT_OF_MEMORY and (resources.memory or 0) < allowed:
            what = f"{failure.error}; it is retried with {show_bytes(allowed)}"
            raise NeedsMemoryError(what, allowed)
        if failure.kind == FailureKind.DISK_FULL:
            count = sum(item.kind == FailureKind.DISK_FULL for item in self._log.failures)
            self._wait(BACKOFF_SECONDS * 2 ** (count - 1))

    def _wait(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until and not (self._folder / CANCEL_FILE).exists():
            time.sleep(POLL_SECONDS)
