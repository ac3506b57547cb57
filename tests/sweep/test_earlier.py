"""A sweep as an earlier process left it."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from ray import tune

from ditk_ray import JobCfg
from ditk_ray.cli.resume import _require_work
from ditk_ray.config.job_spec import check_job
from ditk_ray.errors import NothingLeftError
from ditk_ray.search.stoppers import build_stopper
from ditk_ray.sweep.earlier import read_earlier
from ditk_ray.sweep.ledger import Ledger
from ditk_ray.sweep.run import _recall_stopper
from ditk_ray.sweep.saved_job import SavedJob, save_job
from ditk_ray.sweep.setup import SweepOptions
from ditk_ray.sweep.tuner import _catch_up
from ditk_ray.tracking.record import (
    SweepRecord,
    SweepStatus,
    TrialRecord,
    TrialState,
    write_record,
)
from ditk_ray.trial.metrics_file import MetricsFile
from ditk_ray.trial.report_keys import ATTEMPT, REPORT
from tests.trial import experiments

DRAWN = {"policy.sizes": (64, 64), "policy.limit": math.inf, "policy.rate": 0.5}


class Choosing(JobCfg):
    config = experiments.CARTPOLE
    space: ClassVar[Any] = {
        "policy.sizes": tune.choice([(64, 64), (32,)]),
        "policy.limit": tune.choice([1.0, math.inf]),
        "policy.rate": tune.uniform(0, 1),
    }


class Left:
    """The folder of a sweep whose process is gone."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.record = SweepRecord("left", "eval_value", "max")
        save_job(folder, SavedJob(check_job(Choosing, {}), SweepOptions(), 0), ())
        self.ledger = Ledger(folder)

    def trial(self, state: TrialState, **values: Any) -> TrialRecord:
        name = f"trial_{len(self.record.trials):05d}"
        trial = TrialRecord(name, dict(DRAWN), state, dir=str(self.folder / name), **values)
        self.record.trials[name] = trial
        self.ledger.made(name, DRAWN, DRAWN)
        if state.is_final:
            self.ledger.ended(trial)
        write_record(self.record, self.folder)
        return trial


@pytest.fixture
def left(tmp_path: Path) -> Left:
    return Left(tmp_path)


def test_what_json_does_not_know_is_drawn_as_it_was(left):
    left.trial(TrialState.RUNNING)
    earlier = read_earlier(left.folder)
    (again,) = earlier.unfinished
    assert again.drawn == DRAWN
    assert earlier.record.trials["trial_00000"].params == DRAWN


def test_what_a_scheduler_has_changed_stays_changed_and_is_one_of_the_choices(left):
    trial = left.trial(TrialState.RUNNING)
    trial.set_params({**DRAWN, "policy.sizes": (32,), "policy.rate": 0.7})
    write_record(left.record, left.folder)
    (again,) = read_earlier(left.folder).unfinished
    assert again.drawn == {**DRAWN, "policy.sizes": (32,), "policy.rate": 0.7}


def test_a_trial_that_a_person_has_paused_is_known(left):
    left.trial(TrialState.PAUSED, is_held=True)
    left.trial(TrialState.PAUSED)
    assert read_earlier(left.folder).held == ("trial_00000",)


class Told:
    """Stands for the draws of a searcher."""

    def __init__(self) -> None:
        self.ends: dict[str, Any] = {}
        self.again: list[str] = []

    def recognise(self, trial: str, drawn: Any) -> None: ...

    def ended(self, trial: str, drawn: Any, result: Any) -> None:
        self.ends[trial] = result

    def reopen(self, trial: str) -> None:
        self.again.append(trial)


def test_a_searcher_is_told_no_score_of_what_failed_or_was_cancelled(left):
    scored = {"metrics": {"eval_value": 3.0}, "best_metrics": {"eval_value": 3.0}}
    left.trial(TrialState.SUCCEEDED, **scored)
    left.trial(TrialState.FAILED, **scored)
    left.trial(TrialState.STOPPED, why="cancelled", **scored)
    left.trial(TrialState.STOPPED, **scored)
    left.trial(TrialState.PRUNED, **scored)
    told: Any = Told()
    _catch_up(told, read_earlier(left.folder))
    assert [told.ends[f"0000{number}"] is not None for number in range(5)] == [
        *(True, False, False, True, False)
    ]
    assert told.again == []


def test_a_searcher_knows_which_failed_trials_are_run_again_also_after_another_kill(left):
    left.trial(TrialState.FAILED)
    left.trial(TrialState.SUCCEEDED)
    for retry_failed in (True, False):
        told: Any = Told()
        _catch_up(told, read_earlier(left.folder, retry_failed))
        assert told.again == ["00000"]
        assert list(told.ends) == ["00001"]


def test_a_stopper_is_shown_again_what_it_was_shown_but_for_what_only_tune_knew(left):
    trial = left.trial(TrialState.RUNNING)
    Path(trial.dir).mkdir()
    for step in (100, 200):
        MetricsFile(Path(trial.dir)).append({"env_step": step, ATTEMPT: 0, REPORT: step // 100})
    seen = []
    stopper = build_stopper(lambda name, result: seen.append((name, result)))
    sweep: Any = SimpleNamespace(
        parts=SimpleNamespace(stopper=stopper), earlier=read_earlier(left.folder)
    )
    _recall_stopper(sweep)
    assert [name for name, _ in seen] == ["00000"] * 2
    assert [result["training_iteration"] for _, result in seen] == [1, 2]
    assert [result["env_step"] for _, result in seen] == [100, 200]
    assert seen[0][1]["config"] == DRAWN


def rule_of(left: Left, status: SweepStatus) -> str | None:
    left.record.status, left.record.why = status, "sweep.trials>=1"
    write_record(left.record, left.folder)
    return read_earlier(left.folder).ended_by


def test_the_rule_that_has_ended_a_sweep_is_known(left):
    left.trial(TrialState.SUCCEEDED)
    assert rule_of(left, SweepStatus.FINISHED) == "sweep.trials>=1"
    assert rule_of(left, SweepStatus.FAILED) is None


def test_a_sweep_that_its_own_rule_would_end_at_once_is_not_begun_again(left):
    left.trial(TrialState.SUCCEEDED)
    rule_of(left, SweepStatus.FINISHED)
    sweep: Any = SimpleNamespace(
        folder=left.folder, name="left", seconds_left=None, trial_count=100
    )
    earlier = read_earlier(left.folder)
    with pytest.raises(NothingLeftError, match=r"ended by its stopper, sweep\.trials>=1"):
        _require_work(sweep, earlier)
    _require_work(sweep, replace(earlier, ended_by=None))
