"""A sweep played to a recorder: the events that Tune's would be, without any training."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from unittest import mock

from ditk_ray.record.record import (
    SweepRecord,
    SweepStatus,
    TrialRecord,
    TrialState,
    now,
    write_record,
)
from ditk_ray.tracking.delivery_process import sync
from ditk_ray.tracking.recorder import Recorder, TrackingOptions

JOB = {
    "name": "Played",
    "entry": "serial",
    "seeds": [0],
    "max_env_step": None,
    "searcher": {"name": "random", "settings": {"seed": 3}},
    "space": {"policy.lr": {"kind": "float", "lower": 0.0, "upper": 1.0, "log": False}},
}


class PlayedSweep:
    """Tells a real `Recorder` of trials, and writes the files that they would leave."""

    def __init__(self, folder: Path, uri: str, **options: Any) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.said: list[str] = []
        self._is_alone = False
        self.record = SweepRecord(folder.name, "eval_value", "max", started=now(), job=JOB)
        given = {"experiment": folder.name, "trial_tags": {"seed": "0", "backend": "serial"}}
        self.recorder = Recorder(folder, TrackingOptions(uri, **given | options), self.said.append)

    def start(self) -> PlayedSweep:
        self.recorder.started(self.record)
        return self

    def start_alone(self) -> PlayedSweep:
        """Start without the process that delivers, which takes seconds to import MLflow.

        What it would deliver meanwhile is delivered here, in the end.
        """
        self._is_alone = True
        with mock.patch("ditk_ray.tracking.recorder._start_delivery", return_value=None):
            return self.start()

    def trial(self, number: int = 0, **params: Any) -> TrialRecord:
        """Start a trial, or start it again."""
        name = f"trial_{number:05d}"
        folder = self.folder / name
        (folder / "attempt_0/exp/ckpt").mkdir(parents=True, exist_ok=True)
        (folder / "config.py").write_text(f"LR = {params}\n")
        (folder / "attempt_0/log.txt").write_text("it begins\n")
        (folder / "attempt_0/exp/ckpt/ckpt_best.pth.tar").write_bytes(
            b"weights of " + name.encode()
        )
        drawn = {"policy.lr": 0.5} | params
        trial = self.record.trials.setdefault(name, TrialRecord(name, drawn, dir=str(folder)))
        self.set_state(trial, TrialState.RUNNING)
        return trial

    def set_state(self, trial: TrialRecord, state: TrialState, error: str | None = None) -> None:
        trial.state, trial.error = state, error
        self.recorder.changed(self.record, trial)

    def report(self, trial: TrialRecord, value: float, step: int, **more: Any) -> None:
        trial.node = "node-1"
        metrics = {"eval_value": value, "env_step": step, "training_iteration": 1, **more}
        self.record.add_report(trial, metrics)
        with (Path(trial.dir) / "metrics.jsonl").open("a") as file:
            file.write(json.dumps(metrics) + "\n")
        self.recorder.reported(self.record, trial)

    def refresh(self) -> None:
        self.recorder.refreshed(self.record)

    @property
    def complaints(self) -> list[str]:
        """What was said besides how far it is."""
        return [text for text in self.said if "recording in MLflow" not in text]

    def end(self, status: SweepStatus = SweepStatus.FINISHED) -> None:
        self.record.status = status
        write_record(self.record, self.folder)
        self.recorder.ended(self.record)
        if self._is_alone:
            sync(self.folder)
