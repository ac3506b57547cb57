"""A scheduler that is made anew knows what the trials before it evaluated."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ray.tune.experiment import Trial
from ray.tune.schedulers import TrialScheduler

from ditk_ray.search.budget import Budget
from ditk_ray.search.schedulers import base_of, build_scheduler
from ditk_ray.sweep.scheduler_history import numbered_rows, recall_ended, recall_open
from ditk_ray.tracking.record import SweepRecord, TrialRecord, TrialState
from ditk_ray.trial.metrics_file import MetricsFile
from ditk_ray.trial.report_keys import ATTEMPT, REPORT
from tests.search.spaces import only_rate

CONTROLLER = SimpleNamespace(get_live_trials=lambda: (), get_trials=lambda: ())


def written(folder: Path, *scores: float) -> Path:
    """Write a trial that was evaluated every hundred steps."""
    folder.mkdir()
    file = MetricsFile(folder)
    for number, score in enumerate(scores, start=1):
        steps = {"env_step": 100 * number, "eval_value": score}
        file.append({**steps, ATTEMPT: 0, REPORT: number})
    return folder


def sweep_of(tmp_path: Path, *trials: tuple[float, ...]) -> SweepRecord:
    record = SweepRecord("earlier", "eval_value", "max")
    for number, scores in enumerate(trials):
        name = f"trial_{number:05d}"
        folder = written(tmp_path / name, *scores)
        record.trials[name] = TrialRecord(name, {}, TrialState.SUCCEEDED, dir=str(folder))
    return record


def scheduler(name: str, **options: Any) -> TrialScheduler:
    made = build_scheduler(name, options, Budget(1000, "env_step", 100.0), only_rate())
    made.set_search_properties("eval_value", "max")
    return made


def judged(made: TrialScheduler, trial: Any, step: int, score: float) -> str:
    result = {"env_step": step, "eval_value": score, "training_iteration": step // 100}
    return base_of(made).on_trial_result(CONTROLLER, trial, result)


@pytest.mark.parametrize("base", [None, "median"])
def test_the_median_rule_compares_a_new_trial_with_those_of_before(tmp_path, base):
    made = scheduler("median", grace_period=100)
    if base:
        made = scheduler("resource_changing", base=base, grace_period=100)
    recall_ended(made, sweep_of(tmp_path, *[(10.0, 10.0, 10.0)] * 3))
    worse, better = Trial("mock", stub=True), Trial("mock", stub=True)
    made.on_trial_add(CONTROLLER, worse)
    assert judged(made, worse, 200, 1.0) == TrialScheduler.STOP
    assert judged(made, better, 200, 11.0) == TrialScheduler.CONTINUE


def test_an_open_trial_that_the_median_rule_would_have_stopped_is_judged_when_it_goes_on(tmp_path):
    made = scheduler("median", grace_period=100)
    recall_ended(made, sweep_of(tmp_path, *[(10.0, 10.0, 10.0)] * 3))
    trial = Trial("mock", stub=True)
    made.on_trial_add(CONTROLLER, trial)
    recall_open(made, trial, written(tmp_path / "open", 1.0, 1.0))
    assert judged(made, trial, 300, 1.0) == TrialScheduler.STOP


def test_trials_without_an_evaluation_or_without_a_number_say_nothing(tmp_path):
    made = scheduler("median", grace_period=100, min_samples_required=1)
    recall_ended(made, sweep_of(tmp_path, (), (float("nan"),)))
    assert judged(made, Trial("mock", stub=True), 100, 1.0) == TrialScheduler.CONTINUE


def test_asha_knows_how_far_others_came(tmp_path):
    made = scheduler("asha", grace_period=100, reduction_factor=3)
    recall_ended(made, sweep_of(tmp_path, *[(10.0,)] * 5))
    trial = Trial("mock", stub=True)
    made.on_trial_add(CONTROLLER, trial)
    assert judged(made, trial, 100, 1.0) == TrialScheduler.STOP


def test_evaluations_are_numbered_as_tune_did(tmp_path):
    rows = numbered_rows(written(tmp_path / "trial", 1.0, 2.0))
    assert [row["training_iteration"] for row in rows] == [1, 2]
