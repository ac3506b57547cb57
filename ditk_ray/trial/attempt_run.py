"""One attempt of a trial on each of its seeds: what it reports, wherever it is trained."""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ditk_ray.config.config_file import render_config
from ditk_ray.config.engine_config import EngineConfig
from ditk_ray.config.jsonable import json_text
from ditk_ray.errors import TrialFailedError, TrialTimeoutError
from ditk_ray.trial.aggregate import aggregate_rows
from ditk_ray.trial.failures import FailureKind
from ditk_ray.trial.files import (
    CANCEL_FILE,
    CONFIG_FILE,
    RESULT_FILE,
    RESULT_VALUE_FILE,
)
from ditk_ray.trial.metrics_file import MetricsFile
from ditk_ray.trial.report_keys import ATTEMPT, ENDED, REPORT, RESULT
from ditk_ray.trial.seed import Metrics, Seed
from ditk_ray.trial.spec import TrialPlan

POLL_SECONDS = 0.5
"""How often a run that waits looks whether it was cancelled."""


class AttemptRun(ABC):
    """An attempt that was started when it was made; asked for reports, then closed.

    Not for use by several threads. `close` has to be called in the end; it leaves nothing
    running.
    """

    def __init__(
        self, plan: TrialPlan, folder: Path, attempt: int, reports: int = 0, seconds: float = 0.0
    ) -> None:
        self.folder = folder
        self.attempt = attempt
        self.reports = reports
        """How many there have been, with those of earlier attempts that it goes on from."""
        self._plan = plan
        self._seconds_before = seconds
        self._started = time.monotonic()
        self._metrics = MetricsFile(folder)

    @property
    @abstractmethod
    def seeds(self) -> Sequence[Seed]:
        """Those that are trained, in the plan's order."""

    @abstractmethod
    def _listen(self, seconds: float) -> set[int]:
        """Wait, but not longer, for something to be told; return the seeds that did."""

    def _evaluated(self, number: int, metrics: Metrics) -> Metrics:
        """Take note of an evaluation of all seeds; return what Tune is told besides."""
        return {}

    def next_report(self) -> Metrics:
        """Wait for the next evaluation of all seeds, or the end, and return the metrics.

        They come with their number, `REPORT`; the last ones hold `ENDED`. Raises
        `TrialFailedError` if a seed's training failed or nothing was ever evaluated, and
        `TrialTimeoutError` if the time was over before the first evaluation.
        """
        while not self._is_cancelled():
            if self.reports < self._evaluations_of_all():
                return self._next_evaluation()
            if all(seed.has_ended for seed in self.seeds):
                return self._last_report()
            left = self._seconds_left()
            if left == 0:
                return self._time_is_over()
            self._hear(left)
            if any(seed.has_diverged for seed in self.seeds):
                return self._end("nan", {self._plan.metric: math.nan})
            self._raise_failures()
        return self._end("cancelled")

    def close(self) -> None:
        """End what is still running, and everything below it."""
        for seed in self.seeds:
            seed.stop()

    def _write_config(self, config: EngineConfig) -> None:
        """Write the trial's config as a file that runs by itself."""
        self.folder.mkdir(parents=True, exist_ok=True)
        title = f"A trial of {self._plan.sweep_folder.name}: {self.folder.name}."
        text = render_config(config, self._plan.call_of(self._plan.seeds[0]), title)
        (self.folder / CONFIG_FILE).write_text(text)

    def _folder_of(self, seed: int) -> Path:
        base = attempt_folder(self.folder, self.attempt)
        return base / f"seed_{seed}" if len(self._plan.seeds) > 1 else base

    def _result_file(self, seed: int) -> Path:
        several = len(self._plan.seeds) > 1
        return self.folder / (f"result_seed_{seed}.pkl" if several else RESULT_FILE)

    def _is_cancelled(self) -> bool:
        return (self.folder / CANCEL_FILE).exists()

    def _evaluations_of_all(self) -> int:
        """Return how many evaluations every seed has reached.

        A seed that has ended holds its last value while the others go on.
        """
        running = [seed.evaluations for seed in self.seeds if not seed.has_ended]
        return min(running) if running else max(seed.evaluations for seed in self.seeds)

    def _hear(self, left: float | None) -> None:
        """Wait for a message, but not for long, and end the seeds that are silent too long."""
        limits = self._plan.startup_time, self._plan.stall_time
        waits = [seed.seconds_to_stall(*limits) for seed in self.seeds]
        timeout = min(seconds for seconds in (POLL_SECONDS, left, *waits) if seconds is not None)
        heard = self._listen(max(0.0, timeout))
        for seed in self.seeds:
            silence_left = seed.seconds_to_stall(*limits)
            if seed.seed not in heard and silence_left is not None and silence_left <= 0:
                seed.note_stall(*limits)

    def _raise_failures(self) -> None:
        for seed in self.seeds:
            if seed.failure is not None:
                self.close()
                where = f"seed {seed.seed}: " if len(self.seeds) > 1 else ""
                failure = seed.failure
                raise TrialFailedError(f"{where}{failure.args[0]}", failure.kind, failure.log)

    def _seconds_left(self) -> float | None:
        limits = []
        if self._plan.max_seconds is not None:
            until = self._started + self._plan.max_seconds - self._seconds_before
            limits.append(until - time.monotonic())
        if self._plan.ends_at is not None:
            limits.append(self._plan.ends_at - time.time())
        return max(0.0, min(limits)) if limits else None

    def _time_is_over(self) -> Metrics:
        if not self.reports:
            self.close()
            message = "no evaluation within the time that the trial had"
            raise TrialTimeoutError(message, FailureKind.STALL, str(self.seeds[0].log))
        return self._end("time")

    def _next_evaluation(self) -> Metrics:
        number = self.reports + 1
        metrics = self._aggregate({seed.seed: seed.at(number) for seed in self.seeds})
        score = metrics.get(self._plan.metric)
        self.reports = number
        if isinstance(score, float) and math.isnan(score):
            # It will not be a number again.
            self.close()
            return self._record({**metrics, ENDED: "nan"}, number)
        report = self._record(metrics, number)
        return {**report, **self._evaluated(number, metrics)}

    def _last_report(self) -> Metrics:
        rows = {seed.seed: {**seed.last, **seed.returned} for seed in self.seeds}
        metrics = self._aggregate(rows)
        values = [seed.result_value() for seed in self.seeds]
        metrics[RESULT] = values[0] if len(values) == 1 else values
        if any(value is not None for value in values):
            (self.folder / RESULT_VALUE_FILE).write_text(json_text(metrics[RESULT], indent=1))
        return self._record({**metrics, ENDED: "training"}, self.reports + 1)

    def _end(self, why: str, more: Mapping[str, Any] | None = None) -> Metrics:
        """Stop everything and repeat the last report, with why it is the last."""
        self.close()
        rows = {seed.seed: seed.last for seed in self.seeds}
        metrics = self._aggregate(rows) if self.reports else {}
        return self._record({**metrics, **(more or {}), ENDED: why}, self.reports + 1)

    def _aggregate(self, rows: Mapping[int, Metrics]) -> Metrics:
        plan = self._plan
        return aggregate_rows(rows, plan.metric, plan.mode, plan.seeds_aggregate)

    def _record(self, metrics: Metrics, number: int) -> Metrics:
        report = {**metrics, ATTEMPT: self.attempt, REPORT: number}
        self._metrics.append(report)
        return report


def attempt_folder(trial_folder: Path, attempt: int) -> Path:
    """Return where the files of one attempt are."""
    return trial_folder / f"attempt_{attempt}"


def next_attempt(trial_folder: Path) -> int:
    """Return the number of the first attempt that has no folder yet."""
    number = 0
    while attempt_folder(trial_folder, number).exists():
        number += 1
    return number
