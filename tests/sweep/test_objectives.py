"""Sweeps with several objectives, and with rules that end trials and the sweep."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, ClassVar

import pytest
from ray import tune

from ditk_ray import JobCfg, all_of
from ditk_ray.errors import MetricMissingError
from ditk_ray.execution.scripted import scripted
from ditk_ray.record.record import read_record

pytestmark = pytest.mark.ray


@scripted
def climb(config: Any, max_env_step: int = 2000, **_: Any) -> Iterator[dict[str, float]]:
    """Evaluate with a score that grows faster with a higher rate, which costs more time."""
    rate = config.policy.learn.learning_rate
    for step in range(20, max_env_step + 1, 20):
        known = {"env_step": float(step), "train_iter": step / 5}
        yield {"eval_value": step * rate, "time": 100 * step * rate, **known}


class ScoreAndTime(JobCfg):
    config = ({"policy": {"learn": {"learning_rate": 1e-3}}}, {})
    entry = climb
    space: ClassVar[Any] = {"policy.learn.learning_rate": tune.loguniform(1e-4, 1e-2)}
    metric = ("eval_value", "time")
    mode = ("max", "min")
    scheduler = tune.schedulers.AsyncHyperBandScheduler(
        time_attr="training_iteration", grace_period=2, max_t=100
    )
    num_samples = 3
    max_env_step = 200


def test_a_sweep_for_a_high_score_in_little_time_has_a_pareto_set(sweep):
    outcome = sweep(ScoreAndTime)

    assert outcome.succeeded
    held = json.loads((outcome.folder / "sweep.json").read_text())
    assert [item["metric"] for item in held["objectives"]] == ["eval_value", "time"]
    best = {trial["id"]: trial["best_metrics"] for trial in held["trials"]}
    # Of trials with the same score the best has fewest steps, and this one took least time.
    assert best[held["pareto"][0]]["eval_value"] == held["best"]["score"]
    quickest = min(best, key=lambda name: best[name]["time"])
    assert quickest in held["pareto"]
    assert held["job"]["objectives"] == held["objectives"]
    assert ScoreAndTime.scheduler.metric == "eval_value"  # it knows of one


class WrongSecond(ScoreAndTime):
    metric = ("eval_value", "tme")
    scheduler = None
    num_samples = 1


def test_a_second_objective_that_is_never_reported_ends_the_sweep(sweep):
    with pytest.raises(MetricMissingError, match=r"metric 'tme' is not(.*\n)did you mean 'time'"):
        sweep(WrongSecond)


def long_enough(trial_id: str, result: dict[str, Any]) -> bool:
    return bool(result["train_iter"] >= 20)


class Ruled(JobCfg):
    config = ScoreAndTime.config
    entry = climb
    num_samples = 20
    max_concurrent = 1
    stopper: ClassVar[Any] = [
        all_of("(env_step>=100 or nan) and eval_value>=0", long_enough),
        "sweep.trials>=2 and sweep.env_step>=300",
    ]


def test_a_rule_ends_trials_and_another_the_sweep_and_both_are_named(sweep):
    outcome = sweep(Ruled)

    record = read_record(outcome.folder)
    assert outcome.succeeded
    assert record.why == "sweep.trials>=2 and sweep.env_step>=300"
    ended = [trial for trial in record.trials.values() if trial.state == "stopped"]
    assert 2 <= len(ended) < 20
    why = "env_step>=100 and eval_value>=0 and long_enough"
    assert [trial.why for trial in ended[:2]] == [why, why]
    assert all(trial.metrics["env_step"] >= 100 for trial in ended[:2])


class WrongRule(Ruled):
    stopper = "env_stp>=100"
    num_samples = 1


def test_a_rule_about_what_is_never_reported_ends_the_sweep(sweep):
    with pytest.raises(MetricMissingError, match=r"stopper 'env_stp' is not(.*\n).*'env_step'"):
        sweep(WrongRule)
