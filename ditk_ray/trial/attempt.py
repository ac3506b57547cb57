"""One attempt of a trial on each of its seeds: what it reports, wherever it is trained."""

from __future__ import annotations

import contextlib
import json
import logging
import math
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ditk_ray.config.config_file import render_config
from ditk_ray.config.terms import FailureKind
from ditk_ray.errors import OutOfReachError, TrialFailedError, TrialTimeoutError
from ditk_ray.execution.executor import Handle, Metrics
from ditk_ray.trial.aggregate import aggregate_rows
from ditk_ray.trial.checkpoints import Checkpoint, CheckpointMeta, CheckpointStore, SeedProgress
from ditk_ray.trial.outcome import RESULT_FILE
from ditk_ray.trial.plan import Saving, SeedTask, TrialPlan
from ditk_ray.trial.reports import (
    ATTEMPT,
    CANCEL_FILE,
    CONFIG_FILE,
    ENDED,
    METRICS_FILE,
    REPORT,
    RESULT,
    RESULT_VALUE_FILE,
    SAVE_FILE,
    SAVED,
    MetricsFile,
    read_failures,
    read_reports,
)
from ditk_ray.trial.seed import Seed
from ditk_ray.util.files import write_whole
from ditk_ray.util.plain import json_text

POLL_SECONDS = 0.5
"""How often an attempt that waits looks whether it was cancelled."""

LEAD = 3
"""By how many evaluations a seed may be ahead of the slowest.

A report needs an evaluation of each: to be further ahead gains nothing, and is lost if
the trial is stopped early or resumed from a checkpoint, which they share.
"""

RUNS_FILE = "runs.json"
"""In an attempt's folder, for as long as its runs are its own and outlive it: for each seed the
handle by which its run is found again."""

_log = logging.getLogger(__name__)


def start_attempt(
    plan: TrialPlan, drawn: Mapping[str, Any], folder: Path, gpu_ids: Sequence[str] = ()
) -> Attempt:
    """Start the next attempt of a trial, or adopt one that an earlier process left running.

    A new one resumes from the newest whole checkpoint in the trial's folder, if there is one. Of
    an adopted one nothing is started again. Raises `TrialFailedError` if it cannot be started,
    and `OutOfReachError` if its gateway is gone.
    """
    following = next_attempt(folder)
    handles = _read_handles(folder, following - 1)
    if handles:
        reports = _reports_of(folder, following - 1)
        adopted = Attempt(plan, seed_tasks(plan, drawn, folder, following - 1), folder, reports)
        if adopted.adopt(handles):
            return adopted
    store = CheckpointStore(folder)
    store.clear_staging()
    tasks = seed_tasks(plan, drawn, folder, following, gpu_ids, store.latest())
    attempt = Attempt(plan, tasks, folder, checkpoint=store.latest())
    attempt.start()
    return attempt


def seed_tasks(
    plan: TrialPlan,
    drawn: Mapping[str, Any],
    folder: Path,
    attempt: int,
    gpu_ids: Sequence[str] = (),
    found: Checkpoint | None = None,
) -> list[SeedTask]:
    """Return what an attempt trains, a task for each seed.

    All seeds hold memory at once, but only as many compute as the trial has CPUs.
    """
    job, count, resources = plan.job, len(plan.job.seeds), plan.job.resources
    base = attempt_folder(folder, attempt)
    title = f"A trial of {plan.sweep_folder.name}: {folder.name}, attempt {attempt}."
    done = found.meta.seeds if found else {}
    common = SeedTask(
        config=plan.config_of(drawn),
        call=plan.call_of(job.seeds[0]),
        folder=base,
        trial=folder.name,
        attempt=attempt,
        is_alone=count == 1,
        title=title,
        threads=max(1, resources.threads // min(max(1, int(resources.cpu)), count)),
        gpu_ids=tuple(gpu_ids),
        gpu_share=resources.gpu / count,
        memory=resources.memory and resources.memory // count,
        has_run_out=any(
            failure.kind == FailureKind.OUT_OF_MEMORY for failure in read_failures(folder)
        ),
        python_path=plan.python_path,
        saving=_saving(plan, folder, attempt),
        restore_from=found.folder if found else None,
        evaluations=found.meta.reports if found else 0,
    )
    return [
        replace(
            common,
            call=plan.call_of(seed),
            folder=base / f"seed_{seed}" if count > 1 else base,
            seed=seed,
            seconds=done.get(seed, SeedProgress()).evaluation.get("time", 0.0),
        )
        for seed in job.seeds
    ]


def _saving(plan: TrialPlan, folder: Path, attempt: int) -> Saving | None:
    if not plan.job.checkpoints:
        return None
    return Saving(
        folder=CheckpointStore(folder).staging(attempt),
        agreement=attempt_folder(folder, attempt) / "saves.json"
        if len(plan.job.seeds) > 1
        else None,
        every_evaluation=plan.checkpoints_every_evaluation,
        buffer=plan.job.checkpoint_buffer,
        wish=folder / SAVE_FILE,
    )


class Attempt:
    """An attempt, which is started or adopted, asked for reports, then closed.

    `reports` are those of an attempt that is adopted. Not for use by several threads. `close` has
    to be called in the end; it leaves nothing running.
    """

    def __init__(
        self,
        plan: TrialPlan,
        tasks: Sequence[SeedTask],
        folder: Path,
        reports: int = 0,
        checkpoint: Checkpoint | None = None,
    ) -> None:
        before = checkpoint.meta if checkpoint else None
        self.folder = folder
        self.attempt = tasks[0].attempt
        self.reports = before.reports if before else reports
        """How many there have been, with those of earlier attempts that it resumes from."""
        self.seeds = [
            Seed(
                task,
                folder / (RESULT_FILE if task.is_alone else f"result_seed_{task.seed}.pkl"),
                before.seeds.get(task.seed) if before else None,
                reports,
            )
            for task in tasks
        ]
        self._plan = plan
        self._executor = plan.executor
        self._slots = max(1, int(plan.job.resources.cpu)) if plan.executor.actor is None else None
        self._store = CheckpointStore(folder)
        self._seconds_before = before.time if before else 0.0
        self._started = time.monotonic()
        self._metrics = MetricsFile(folder)
        self._handles: dict[str, Handle] = {}

    def start(self) -> None:
        """Start those seeds whose turn it is."""
        self._write_config()
        self._write_handles()
        with self._closed_if_failed():
            self._give_turns()

    def adopt(self, handles: Mapping[str, Handle]) -> bool:
        """Follow the runs of these handles; False if one is gone, and then all are ended."""
        self._handles = dict(handles)
        with self._closed_if_failed():
            for seed in self.seeds:
                run = self._executor.adopt(seed.task, handles[str(seed.seed)], self.reports == 0)
                if run is not None:
                    seed.follow(run)
        if any(seed.run is None for seed in self.seeds):
            self.close()
            return False
        return True

    @contextlib.contextmanager
    def _closed_if_failed(self) -> Iterator[None]:
        try:
            yield
        except OutOfReachError:  # its gateway is gone
            raise
        except BaseException:
            self.close()
            raise

    @contextlib.contextmanager
    def _logged(self, what: str) -> Iterator[None]:
        """Do without something that the disk has no room for."""
        try:
            yield
        except OSError as error:
            _log.warning("%s: %s: %s", self.folder, what, error)

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
                return self._end("nan", {self._plan.job.metric: math.nan})
            self._raise_failures()
        return self._end("cancelled")

    def close(self) -> None:
        """End what is still running, and everything below it.

        Runs that are out of reach stay the attempt's own: whoever comes next adopts them.
        """
        stopped = [seed.stop() for seed in self.seeds]
        if all(stopped):
            self._runs_file.unlink(missing_ok=True)

    def _write_config(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        first = self.seeds[0].task
        title = f"A trial of {self._plan.sweep_folder.name}: {self.folder.name}."
        text = render_config(first.config, first.call, title)
        write_whole(self.folder / CONFIG_FILE, text)

    @property
    def _runs_file(self) -> Path:
        return attempt_folder(self.folder, self.attempt) / RUNS_FILE

    def _write_handles(self) -> None:
        handles = {
            str(seed.seed): seed.run.handle if seed.run else self._executor.handle_of(seed.task)
            for seed in self.seeds
        }
        if any(handles.values()) and handles != self._handles:
            self._runs_file.parent.mkdir(exist_ok=True)
            write_whole(self._runs_file, json.dumps(handles))
            self._handles = handles

    def _give_turns(self) -> None:
        alive = {seed.seed: seed.evaluations for seed in self.seeds if not seed.has_ended}
        turns = choose_turns(alive, self._slots) if self._slots else set(alive)
        for seed in self.seeds:  # first make room, then use it
            if seed.seed in alive and seed.seed not in turns:
                seed.wait_turn()
        for seed in self.seeds:
            if seed.seed in turns:
                seed.take_turn(self._executor)

    def _is_cancelled(self) -> bool:
        return (self.folder / CANCEL_FILE).exists()

    def _evaluations_of_all(self) -> int:
        """Return how many evaluations every seed has reached.

        A seed that has ended holds its last value while the others continue.
        """
        running = [seed.evaluations for seed in self.seeds if not seed.has_ended]
        return min(running) if running else max(seed.evaluations for seed in self.seeds)

    def _hear(self, left: float | None) -> None:
        limits = self._plan.job.startup_time, self._plan.job.stall_time
        waits = [seed.seconds_to_stall(*limits) for seed in self.seeds]
        timeout = min(seconds for seconds in (POLL_SECONDS, left, *waits) if seconds is not None)
        heard = self._listen(max(0.0, timeout))
        for seed in self.seeds:
            silence_left = seed.seconds_to_stall(*limits)
            if seed.seed not in heard and silence_left is not None and silence_left <= 0:
                seed.note_stall(*limits)

    def _listen(self, seconds: float) -> set[int]:
        self._give_turns()
        live = {seed.live_run: seed for seed in self.seeds if seed.live_run is not None}
        heard = self._executor.listen([run for run in live if run is not None], seconds)
        for run, event in heard:
            live[run].take(event)
        return {live[run].seed for run, _ in heard}

    def _raise_failures(self) -> None:
        for seed in self.seeds:
            if seed.failure is not None:
                self.close()
                where = f"seed {seed.seed}: " if len(self.seeds) > 1 else ""
                failure = seed.failure
                raise TrialFailedError(f"{where}{failure.args[0]}", failure.kind, failure.log)

    def _seconds_left(self) -> float | None:
        limits, allowed = [], self._plan.job.max_trial_time
        if allowed is not None:
            limits.append(self._started + allowed - self._seconds_before - time.monotonic())
        if self._plan.ends_at is not None:
            limits.append(self._plan.ends_at - time.time())
        return max(0.0, min(limits)) if limits else None

    def _time_is_over(self) -> Metrics:
        if not self.reports:
            self.close()
            message = "no evaluation within the time that the trial had"
            raise TrialTimeoutError(message, FailureKind.STALL, str(self.seeds[0].task.log))
        return self._end("time")

    def _next_evaluation(self) -> Metrics:
        number = self.reports + 1
        metrics = self._aggregate({seed.seed: seed.at(number) for seed in self.seeds})
        score = metrics.get(self._plan.job.metric)
        self.reports = number
        if isinstance(score, float) and math.isnan(score):
            # It will not be a number again.
            self.close()
            return self._record({**metrics, ENDED: "nan"}, number)
        report = self._record(metrics, number)
        with self._logged(f"{RUNS_FILE} is not up to date"):  # the next evaluation tries again
            self._write_handles()
        return {**report, SAVED: True} if self._keep_checkpoint(number, metrics) else report

    def _keep_checkpoint(self, number: int, metrics: Metrics) -> bool:
        """Make what the seeds have saved at this evaluation a checkpoint, if all of them have."""
        staged = self._store.staging(self.attempt) / str(number)
        if not staged.is_dir():
            return False
        if not all(seed.has_saved(number) for seed in self.seeds):
            shutil.rmtree(staged, ignore_errors=True)
            return False
        meta = CheckpointMeta(
            trial=self.folder.name,
            reports=number,
            attempt=self.attempt,
            env_step=int(metrics.get("env_step", 0)),
            train_iter=int(metrics.get("train_iter", 0)),
            time=float(metrics.get("time", 0.0)),
            seeds={seed.seed: seed.progress_at(number) for seed in self.seeds},
        )
        try:
            self._store.commit(staged, meta)
        except OSError as error:  # the one before stays
            _log.warning("%s: no checkpoint at evaluation %d: %s", self.folder, number, error)
            shutil.rmtree(staged, ignore_errors=True)
            return False
        return True

    def _last_report(self) -> Metrics:
        rows = {seed.seed: {**seed.last, **seed.returned} for seed in self.seeds}
        metrics = self._aggregate(rows)
        values = [seed.result_value() for seed in self.seeds]
        metrics[RESULT] = values[0] if len(values) == 1 else values
        if any(value is not None for value in values):
            with self._logged("no " + RESULT_VALUE_FILE):  # the training is not to be repeated
                write_whole(self.folder / RESULT_VALUE_FILE, json_text(metrics[RESULT], indent=1))
        return self._record({**metrics, ENDED: "training"}, self.reports + 1)

    def _end(self, why: str, more: Mapping[str, Any] | None = None) -> Metrics:
        self.close()
        rows = {seed.seed: seed.last for seed in self.seeds}
        metrics = self._aggregate(rows) if self.reports else {}
        return self._record({**metrics, **(more or {}), ENDED: why}, self.reports + 1)

    def _aggregate(self, rows: Mapping[int, Metrics]) -> Metrics:
        job = self._plan.job
        return aggregate_rows(rows, job.metric, job.mode, job.seeds_aggregate)

    def _record(self, metrics: Metrics, number: int) -> Metrics:
        report = {**metrics, ATTEMPT: self.attempt, REPORT: number}
        self._metrics.append(report)
        return report


def choose_turns(evaluations: Mapping[int, int], slots: int) -> set[int]:
    """Return the seeds that compute, of those that have not ended, with their evaluations.

    They are the `slots` that are furthest behind; of equals, those named first.
    """
    if not evaluations:
        return set()
    behind = sorted(evaluations, key=lambda seed: evaluations[seed])
    slowest = evaluations[behind[0]]
    return {seed for seed in behind[:slots] if evaluations[seed] - slowest < LEAD}


def attempt_folder(trial_folder: Path, attempt: int) -> Path:
    return trial_folder / f"attempt_{attempt}"


def next_attempt(trial_folder: Path) -> int:
    number = 0
    while attempt_folder(trial_folder, number).exists():
        number += 1
    return number


def _read_handles(folder: Path, attempt: int) -> dict[str, Handle]:
    file = attempt_folder(folder, attempt) / RUNS_FILE
    return dict(json.loads(file.read_text())) if file.is_file() else {}


def _reports_of(folder: Path, attempt: int) -> int:
    rows = read_reports(folder / METRICS_FILE)
    return sum(row.get(ATTEMPT) == attempt and ENDED not in row for row in rows)
