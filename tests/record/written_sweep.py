"""A sweep's folder made for a test, by the writers that a real sweep uses; nothing trains."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ditk_ray.record.journal import TRACKING_FOLDER, EventWriter, journal_path
from ditk_ray.record.record import (
    RECORD_FILE,
    SweepRecord,
    SweepStatus,
    TrialRecord,
    TrialState,
    write_record,
)
from ditk_ray.tracking.recording import DeliveryState, write_state
from ditk_ray.util.plain import json_text

Scores = list[tuple[Any, Any]]


class WrittenSweep:
    """Writes `sweep.json`, and the files of trials, as their sweep would."""

    def __init__(self, folder: Path, seeds: tuple[int, ...] = (0,), **job: Any) -> None:
        folder.mkdir(parents=True)
        self.folder = folder
        described = {"seeds": list(seeds), "num_samples": 3, "space": {}} | job
        self.record = SweepRecord(
            folder.name, "eval_value", "max", started="2026-01-02T10:00:00+00:00", job=described
        )

    def trial(
        self,
        number: int,
        state: TrialState = TrialState.SUCCEEDED,
        scores: Scores = (),  # type: ignore[assignment]
        error: str | None = None,
        why: str | None = None,
        **params: Any,
    ) -> TrialRecord:
        """Add a trial with its evaluations as (score, env_step)."""
        name = f"trial_{number:05d}"
        folder = self.folder / name
        folder.mkdir()
        trial = TrialRecord(name, params, state, dir=str(folder), error=error, why=why)
        self.record.trials[name] = trial
        for score, step in scores:
            metrics = {"eval_value": score, "env_step": step, "time": 1.5}
            self.record.add_report(trial, metrics)
            with (folder / "metrics.jsonl").open("a") as file:
                file.write(json_text(metrics) + "\n")
        if state is not TrialState.PENDING:
            (folder / "config.py").write_text("print('made for a test')\n")
        return trial

    def log(self, number: int, text: str | bytes, attempt: int = 0, seed: str = "") -> Path:
        """Append to the log of a trial's attempt."""
        folder = self.folder / f"trial_{number:05d}" / f"attempt_{attempt}" / seed
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / "log.txt"
        with path.open("ab") as file:
            file.write(text if isinstance(text, bytes) else text.encode())
        return path

    def write(self, status: SweepStatus = SweepStatus.FINISHED) -> WrittenSweep:
        """Write the record as it is."""
        self.record.status = status
        is_over = status is not SweepStatus.RUNNING
        self.record.ended = "2026-01-02T10:01:30+00:00" if is_over else None
        write_record(self.record, self.folder)
        return self

    def written_at(self, time: float) -> WrittenSweep:
        """Pretend that the record was written at this time."""
        os.utime(self.folder / RECORD_FILE, (time, time))
        return self

    def recorded(
        self,
        uri: str,
        delivered: float = 1.0,
        has_end: bool = True,
        files_missing: Sequence[str] = (),
    ) -> WrittenSweep:
        """Write a journal, a part of which was delivered to the store."""
        journal = EventWriter(journal_path(self.folder))
        journal.append("sweep", id="1", name=self.folder.name, uri=uri, experiment="mine")
        journal.append("trial", trial="trial_00000", params={}, tags={})
        if has_end:
            journal.append("end", status="finished")
        journal.close()
        offset = int(journal_path(self.folder).stat().st_size * delivered)
        write_state(
            self.folder, DeliveryState(uri, offset, "7", {"": "abc123"}, 0, [*files_missing])
        )
        return self

    def note_delivery_error(self, uri: str, error: str) -> None:
        for path in (self.folder / TRACKING_FOLDER).glob("mlflow-*.json"):
            state = DeliveryState(**json.loads(path.read_text()))
            if state.uri == uri:
                state.error = error
                write_state(self.folder, state)
