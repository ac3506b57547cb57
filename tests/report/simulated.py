"""Sweeps that never ran: folders as a sweep leaves them, with simulated evaluations."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ditk_ray.record.record import (
    SweepRecord,
    SweepStatus,
    TrialRecord,
    TrialState,
    write_record,
)

SPACE = {
    "policy.learn.learning_rate": {"kind": "float", "lower": 1e-5, "upper": 1e-1, "log": True},
    "policy.discount_factor": {"kind": "float", "lower": 0.9, "upper": 0.999, "log": False},
    "policy.learn.batch_size": {"kind": "choice", "choices": [32, 64, 128]},
    "policy.nstep": {"kind": "int", "lower": 1, "upper": 6, "log": False},
    "policy.other.eps.type": {"kind": "choice", "choices": ["exp", "linear"]},
    "policy.other.eps.decay": {
        "kind": "int",
        "lower": 1000,
        "upper": 20000,
        "log": True,
    },
}
JOB = {
    "name": "SimulatedJobCfg",
    "entry": "serial",
    "num_samples": 8,
    "max_env_step": 5000,
    "seeds": [0],
    "resources": {"cpu": 2, "gpu": 0.5},
    "searcher": {"name": "random", "settings": {}},
    "scheduler": {"name": "ASHA", "settings": {"grace_period": 500}},
    "space": SPACE,
}


class Simulation:
    """A sweep to add trials to; `write` leaves its folder as a real one would be."""

    def __init__(self, folder: Path, mode: str = "max", **job: Any) -> None:
        self.folder = folder
        self.record = SweepRecord(
            "simulated",
            "eval_value",
            mode,
            SweepStatus.FINISHED,
            started="2026-03-01T10:00:00+00:00",
            ended="2026-03-01T10:01:40+00:00",
            job={**JOB, **job},
        )

    def add(
        self,
        scores: list[float | None],
        params: Mapping[str, Any] | None = None,
        state: TrialState = TrialState.SUCCEEDED,
        **fields: Any,
    ) -> TrialRecord:
        """Add a trial that was evaluated every hundred steps, for a second each."""
        trial = TrialRecord(f"trial_{len(self.record.trials):05d}", dict(params or {}), state)
        trial.dir = str(self.folder / trial.id)
        trial.started = fields.pop("started", "2026-03-01T10:00:00+00:00")
        trial.ended = fields.pop("ended", "2026-03-01T10:00:20+00:00")
        vars(trial).update(fields)
        self.record.trials[trial.id] = trial
        rows = [
            {"eval_value": score, "env_step": 100 * place, "time": float(place)}
            for place, score in enumerate(scores)
        ]
        for row in rows:
            self.record.add_report(trial, row)
        ended = [{**rows[-1], "ditk_ray_ended": "training"}] if rows and state.is_final else []
        self.write_metrics(trial, [*rows, *ended])
        return trial

    def write_metrics(self, trial: TrialRecord, rows: list[dict[str, Any]]) -> Path:
        """Write a trial's evaluations."""
        file = Path(trial.dir) / "metrics.jsonl"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return file

    def fail(self, error: str, log: str, **fields: Any) -> TrialRecord:
        """Add a trial that failed before its first evaluation, with its log."""
        trial = self.add([], state=TrialState.FAILED, **fields)
        file = Path(trial.dir) / "attempt_0" / "log.txt"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(log)
        trial.error = f"{error} [log: {file}]"
        return trial

    def write(self) -> Path:
        """Write `sweep.json` and return the sweep's folder."""
        self.folder.mkdir(parents=True, exist_ok=True)
        write_record(self.record, self.folder)
        return self.folder


def simulate(folder: Path, trials: int, evaluations: int, mode: str = "max") -> Simulation:
    """Return a sweep in which the learning rate matters, and a third of the trials end early."""
    draw = random.Random(trials)
    sweep = Simulation(folder, mode)
    for _ in range(trials):
        params = _params(draw)
        is_early = draw.random() < 1 / 3
        length = evaluations // 3 if is_early else evaluations
        state = TrialState.STOPPED if is_early else TrialState.SUCCEEDED
        sweep.add(_scores(draw, params, length), params, state)
    return sweep


def _params(draw: random.Random) -> dict[str, Any]:
    params: dict[str, Any] = {
        "policy.learn.learning_rate": 10 ** draw.uniform(-5, -1),
        "policy.discount_factor": draw.uniform(0.9, 0.999),
        "policy.learn.batch_size": draw.choice([32, 64, 128]),
        "policy.nstep": draw.randint(1, 5),
        "policy.other.eps.type": draw.choice(["exp", "linear"]),
    }
    if params["policy.other.eps.type"] == "exp":
        params["policy.other.eps.decay"] = draw.randint(1000, 20000)
    return params


def _scores(draw: random.Random, params: Mapping[str, Any], length: int) -> list[float | None]:
    quality = math.exp(-((math.log10(params["policy.learn.learning_rate"]) + 3) ** 2))
    return [
        round(200 * quality * (1 - math.exp(-4 * place / length)) + draw.gauss(0, 6), 3)
        for place in range(length)
    ]
