"""What an attempt makes of runs that an earlier process left."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from ditk_ray.errors import TrialFailedError
from ditk_ray.execution.executor import Ended, Event, Executor, Handle, Run
from ditk_ray.trial.attempt import RUNS_FILE, Attempt, seed_tasks, start_attempt
from ditk_ray.trial.plan import SeedTask
from tests.trial.experiments import make_plan


class Outliving(Run):
    def __init__(self) -> None:
        self.is_stopped = False

    def stop(self) -> bool:
        self.is_stopped = True
        return True


class Elsewhere(Executor[SeedTask]):
    """Where the run of one seed is found again, and that of the others is not."""

    def __init__(self, found: int) -> None:
        self.found = found
        self.runs: dict[int, Outliving] = {}
        self.started: list[int] = []

    def handle_of(self, task: SeedTask) -> Handle:
        return {"seed": task.seed}

    def start(self, task: SeedTask) -> Run:
        self.started.append(task.seed)
        return Outliving()

    def adopt(self, task: SeedTask, handle: Handle, may_start: bool) -> Run | None:
        if handle["seed"] != self.found:
            raise TrialFailedError("the quota is used up", "not_started", "")
        return self.runs.setdefault(task.seed, Outliving())

    def listen(self, runs: Sequence[Run], seconds: float) -> list[tuple[Run, Event]]:
        return [(run, Ended(returned={"eval_value": 1.0})) for run in runs]


@pytest.fixture
def left(tmp_path: Path) -> tuple[Any, Path]:
    """A plan for two seeds, and the folder of a trial that was left while both ran."""
    plan = make_plan(tmp_path, executor=Elsewhere(found=0), seeds=(0, 1))
    folder = tmp_path / "trial_00000"
    (folder / "attempt_0").mkdir(parents=True)
    (folder / "attempt_0" / RUNS_FILE).write_text(json.dumps({"0": {"seed": 0}, "1": {"seed": 1}}))
    return plan, folder


def test_if_one_seed_cannot_be_adopted_the_others_do_not_run_on(left):
    plan, folder = left
    with pytest.raises(TrialFailedError, match="quota"):
        start_attempt(plan, {}, folder)
    assert [run.is_stopped for run in plan.executor.runs.values()] == [True]
    assert not (folder / "attempt_0" / RUNS_FILE).exists()


def test_a_full_disk_at_the_end_costs_files_not_the_training(left, monkeypatch):
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    plan, folder = left
    attempt = Attempt(plan, seed_tasks(plan, {}, folder, 1), folder)
    attempt.start()
    for seed in attempt.seeds:
        seed._result = folder / "result.pkl"
    monkeypatch.setattr("ditk_ray.trial.attempt.write_whole", full)
    monkeypatch.setattr("ditk_ray.trial.seed.keep_result", full)
    report = attempt.next_report()
    assert report["eval_value"] == 1.0
    attempt.close()
