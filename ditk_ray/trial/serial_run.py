"""The serial backend: one attempt of a trial, on each of its seeds, on this node."""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

import numpy as np

from ditk_ray.config.config_file import render_config
from ditk_ray.config.jsonable import json_text
from ditk_ray.errors import TrialFailedError, TrialTimeoutError
from ditk_ray.trial.channel import Message
from ditk_ray.trial.files import CONFIG_FILE, METRICS_FILE, RESULT_FILE, RESULT_VALUE_FILE
from ditk_ray.trial.report_keys import ATTEMPT, ENDED, RESULT
from ditk_ray.trial.result import UnreadableResultError, keep_result, read_result
from ditk_ray.trial.spec import Attempt, TrialPlan
from ditk_ray.trial.training import train
from ditk_ray.trial.warm_node import NodeProcess, WarmNode

EXIT_SECONDS = 5.0
"""How long a process has to leave after it said that training has ended."""

Metrics = dict[str, Any]


@dataclass
class _SeedRun:
    """One seed's process and what it has told so far."""

    seed: int
    attempt: Attempt
    process: NodeProcess
    evaluations: list[Metrics] = field(default_factory=list)
    checkpoint: Path | None = None
    result: Path | None = None
    returned: Metrics = field(default_factory=dict)
    is_running: bool = True
    error: str | None = None


class SerialRun:
    """One attempt of a trial: started when made, asked for reports, then closed.

    Not for use by several threads. `close` has to be called in the end; it
    leaves no process behind.
    """

    def __init__(
        self,
        plan: TrialPlan,
        drawn: Mapping[str, Any],
        folder: Path,
        node: WarmNode,
        gpu_ids: Sequence[str] = (),
        restore_from: Path | None = None,
    ) -> None:
        self.folder = folder
        self._plan = plan
        self._started = time.monotonic()
        self._reported = 0
        config = plan.config_of(drawn)
        folder.mkdir(parents=True, exist_ok=True)
        title = f"A trial of {plan.sweep_folder.name}: {folder.name}."
        text = render_config(config, plan.call_of(plan.seeds[0]), title)
        (folder / CONFIG_FILE).write_text(text)
        self.attempt = _next_attempt(folder)
        base = folder / f"attempt_{self.attempt}"
        self._runs: list[_SeedRun] = []
        for seed in plan.seeds:
            attempt = Attempt(
                config=config,
                call=plan.call_of(seed),
                folder=base / f"seed_{seed}" if len(plan.seeds) > 1 else base,
                threads=max(1, plan.resources.threads // len(plan.seeds)),
                gpu_ids=tuple(gpu_ids),
                gpu_share=plan.resources.gpu / len(plan.seeds),
                memory=plan.resources.memory and plan.resources.memory // len(plan.seeds),
                checkpoints=plan.checkpoints,
                restore_from=_checkpoint_of(restore_from, seed),
            )
            process = node.run(partial(train, attempt), plan.python_path)
            self._runs.append(_SeedRun(seed, attempt, process))

    def next_report(self) -> Metrics:
        """Wait for the next evaluation of all seeds, or the end, and return the metrics.

        The last report holds `ENDED`. Raises `TrialFailedError` if a seed's
        training failed or nothing was ever evaluated, and `TrialTimeoutError`
        if the time was over before the first evaluation.
        """
        while self._is_waiting():
            left = self._seconds_left()
            if left == 0:
                return self._time_is_over()
            live = {run.process.connection: run for run in self._runs if run.is_running}
            for connection in wait(list(live), timeout=left):
                self._take(live[connection])  # type: ignore[index]
            self._raise_failures()
        if self._reported < self._evaluations_of_all():
            self._reported += 1
            return self._record(self._checked(self._aggregate(self._reported - 1)))
        return self._last_report()

    def checkpoints(self) -> dict[int, Path]:
        """Return the newest checkpoint of each seed that has one."""
        return {run.seed: run.checkpoint for run in self._runs if run.checkpoint}

    def close(self) -> None:
        """End what is still running, and everything below it."""
        for run in self._runs:
            run.process.stop()
            run.is_running = False

    def _is_waiting(self) -> bool:
        running = any(run.is_running for run in self._runs)
        return running and self._reported >= self._evaluations_of_all()

    def _evaluations_of_all(self) -> int:
        """Return how many evaluations every seed has reached.

        A seed that has ended holds its last value while the others go on.
        """
        running = [len(run.evaluations) for run in self._runs if run.is_running]
        return min(running) if running else max(len(run.evaluations) for run in self._runs)

    def _take(self, run: _SeedRun) -> None:
        message = run.process.receive()
        if message is None:
            run.is_running = False
            run.error = run.error or _abnormal_end(run.process.exit_code)
        elif message["kind"] == "evaluation":
            run.evaluations.append(message["metrics"])
            self._replace_checkpoint(run, message["checkpoint"])
        elif message["kind"] == "error":
            run.error = message["message"]
        elif message["kind"] == "end":
            self._finish(run, message)

    def _replace_checkpoint(self, run: _SeedRun, path: str | None) -> None:
        """Keep a seed's newest checkpoint only.

        Done here and not by the trial, which runs ahead of Tune: Tune saves between
        two reports, so what it saves is still there.
        """
        if run.checkpoint is not None:
            run.checkpoint.unlink(missing_ok=True)
        run.checkpoint = Path(path) if path else None

    def _finish(self, run: _SeedRun, message: Message) -> None:
        run.is_running = False
        run.result = Path(message["result"]) if message["result"] else None
        run.returned = message["returned"]
        if run.process.connection.poll(EXIT_SECONDS):
            run.process.receive()
        run.process.stop()
        if not run.evaluations and not run.returned:
            run.error = "training ended without a single evaluation"

    def _raise_failures(self) -> None:
        for run in self._runs:
            if run.error is None:
                continue
            self.close()
            where = f"seed {run.seed}: " if len(self._runs) > 1 else ""
            raise TrialFailedError(f"{where}{run.error} [log: {run.attempt.log}]")

    def _seconds_left(self) -> float | None:
        limits = []
        if self._plan.max_seconds is not None:
            limits.append(self._started + self._plan.max_seconds - time.monotonic())
        if self._plan.ends_at is not None:
            limits.append(self._plan.ends_at - time.time())
        return max(0.0, min(limits)) if limits else None

    def _time_is_over(self) -> Metrics:
        self.close()
        if not self._reported:
            raise TrialTimeoutError(
                f"no evaluation within the time that the trial had "
                f"[log: {self._runs[0].attempt.log}]"
            )
        return self._record({**self._aggregate(self._reported - 1), ENDED: "time"})

    def _checked(self, metrics: Metrics) -> Metrics:
        """End the trial if its score is no number any more: it will not be one again."""
        score = metrics.get(self._plan.metric)
        if isinstance(score, float) and math.isnan(score):
            self.close()
            return {**metrics, ENDED: "nan"}
        return metrics

    def _last_report(self) -> Metrics:
        metrics = self._aggregate(self._reported - 1) if self._reported else {}
        returned = [run.returned for run in self._runs]
        for key in returned[0]:
            metrics[key] = float(np.mean([item.get(key, np.nan) for item in returned]))
        values = [self._keep_result(run) for run in self._runs]
        metrics[RESULT] = values[0] if len(values) == 1 else values
        if any(run.result for run in self._runs):
            (self.folder / RESULT_VALUE_FILE).write_text(json_text(metrics[RESULT], indent=1))
        return self._record({**metrics, ENDED: "training"})

    def _keep_result(self, run: _SeedRun) -> Any:
        """Keep the pickled return beside the config, and return its value if it is plain."""
        if run.result is None:
            return None
        name = RESULT_FILE if len(self._runs) == 1 else f"result_seed_{run.seed}.pkl"
        kept = self.folder / name
        try:
            keep_result(run.result, kept)
            return read_result(kept)
        except UnreadableResultError as error:
            return {"unreadable": str(error)}

    def _aggregate(self, index: int) -> Metrics:
        """Return the means over the seeds at their evaluation number `index`."""
        told = [run for run in self._runs if run.evaluations]
        rows = [run.evaluations[min(index, len(run.evaluations) - 1)] for run in told]
        if len(self._runs) == 1:
            return dict(rows[0])
        means = {
            key: float(np.mean([row[key] for row in rows]))
            for key in rows[0]
            if all(key in row for row in rows)
        }
        each = {
            f"eval_value_seed_{run.seed}": row.get("eval_value")
            for run, row in zip(told, rows, strict=True)
        }
        return means | each

    def _record(self, metrics: Metrics) -> Metrics:
        with (self.folder / METRICS_FILE).open("a") as file:
            file.write(json_text({**metrics, ATTEMPT: self.attempt}) + "\n")
        return metrics


def _next_attempt(folder: Path) -> int:
    number = 0
    while (folder / f"attempt_{number}").exists():
        number += 1
    return number


def _checkpoint_of(folder: Path | None, seed: int) -> Path | None:
    if folder is None:
        return None
    checkpoint = folder / checkpoint_name(seed)
    return checkpoint if checkpoint.is_file() else None


def checkpoint_name(seed: int) -> str:
    """Return the name under which one seed's checkpoint is kept."""
    return f"seed_{seed}.pth.tar"


def _abnormal_end(code: int | None) -> str:
    if code is not None and code < 0:
        name = signal.Signals(-code).name
        likely = "; out of memory?" if name == "SIGKILL" else ""
        return f"the trial's process was ended by {name}{likely}"
    return f"the trial's process left with code {code} before its training ended"
