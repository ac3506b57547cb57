"""What has to be true of every sweep that went through faults."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from ditk_ray.record.record import SweepRecord, read_record
from ditk_ray.record.trial_folder import read_metrics
from ditk_ray.trial.reports import standing


def ledger_rows(folder: Path, kind: str) -> list[dict[str, Any]]:
    """Return the lines of one kind of a sweep's ledger."""
    file = folder / "state/trials.jsonl"
    lines = file.read_text().splitlines() if file.is_file() else []
    rows = []
    for line in lines:
        try:
            rows.append(json.loads(line))
        except ValueError:  # cut off by a kill
            continue
    return [row for row in rows if row["kind"] == kind]


def ended(folder: Path) -> list[str]:
    """Return the trials that are over, in their order."""
    return [row["record"]["id"] for row in ledger_rows(folder, "ended")]


def attempts(folder: Path) -> dict[str, int]:
    """Return how often each trial was attempted."""
    trials = sorted(folder.glob("trial_*"))
    return {trial.name: len(list(trial.glob("attempt_*"))) for trial in trials}


def require_sound(folder: Path, count: int) -> SweepRecord:
    """Fail unless every trial is there once, has ended once, and never went back.

    Counters go on: the evaluations that led to where a trial is are in order, and none
    stands in it twice.
    """
    record = read_record(folder)
    names = [f"trial_{number:05d}" for number in range(count)]
    assert sorted(record.trials) == names  # those that start together do so in any order
    assert [row["trial"] for row in ledger_rows(folder, "made")] == names, "none is made twice"
    assert all(trial.state.is_final for trial in record.trials.values()), record.counts()
    assert Counter(ended(folder)) == Counter(names), "none ends twice"
    for trial in record.trials.values():
        rows = standing(read_metrics(Path(trial.dir)))
        steps = [row["env_step"] for row in rows]
        assert steps == sorted(set(steps)), trial.id
    return record
