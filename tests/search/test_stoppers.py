"""Rules that end trials early."""

from __future__ import annotations

import math

import pytest
from ray.tune.stopper import MaximumIterationStopper, Stopper

from ditk_ray import any_of
from ditk_ray.errors import BadConfigError
from ditk_ray.search.stoppers import build_stopper
from ditk_ray.trial.report_keys import ENDED, FAILURE


@pytest.mark.parametrize(
    ("rule", "value", "ends"),
    [
        ("eval_value>=195", 195, True),
        ("eval_value>=195", 194.9, False),
        ("eval_value>195", 195, False),
        ("eval_value<=-1.5", -1.5, True),
        ("eval_value < 1e-3", 0.0005, True),
        (" eval_value >= +1E2 ", 100, True),
        ("eval_value>=.5", 0.5, True),
    ],
)
def test_a_rule_ends_a_trial_as_soon_as_it_holds(rule, value, ends):
    assert build_stopper(rule)("trial", {"eval_value": value}) is ends


def test_one_rule_of_several_is_enough():
    stopper = build_stopper("eval_value>=195, env_step>=1000")

    assert stopper("trial", {"eval_value": 200, "env_step": 10})
    assert stopper("trial", {"eval_value": 10, "env_step": 1000})
    assert not stopper("trial", {"eval_value": 10, "env_step": 10})


@pytest.mark.parametrize("result", [{}, {"eval_value": None}, {"eval_value": math.nan}])
def test_a_metric_without_a_value_ends_nothing(result):
    assert not build_stopper("eval_value>=195")("trial", result)


def test_a_metric_that_is_no_number_ends_nothing():
    assert not build_stopper("trial_id>=195")("trial", {"trial_id": "abc_00001"})


def test_a_metric_may_have_a_path_for_a_name():
    assert build_stopper("eval/return-mean.0>=1")("trial", {"eval/return-mean.0": 2})


def test_a_dict_says_at_which_value_each_metric_ends_a_trial():
    stopper = build_stopper({"env_step": 1000, "eval_value": 1e-05})

    assert stopper("trial", {"env_step": 1000})
    assert stopper("trial", {"eval_value": 0.1})
    assert not stopper("trial", {"env_step": 999, "eval_value": 0})


def test_a_function_is_asked_with_the_trial_and_its_result():
    stopper = build_stopper(lambda trial_id, result: trial_id == "a" and result["x"] > 1)

    assert stopper("a", {"x": 2})
    assert not stopper("b", {"x": 2})


def test_a_stopper_of_tune_is_asked():
    stopper = build_stopper(MaximumIterationStopper(2))

    assert [stopper("trial", {}) for _ in range(2)] == [False, True]


class Always(Stopper):
    def __call__(self, trial_id, result):
        return True

    def stop_all(self):
        return True


def test_a_stopper_class_is_built_and_may_end_the_sweep():
    stopper = build_stopper(Always)

    assert stopper("trial", {})
    assert stopper.stop_all()
    assert (stopper.reason("trial"), stopper.why) == ("Always", "Always")


def looks_at_score_and_clock(trial_id, result):
    return result["eval_value"] >= 195 and result["time_total_s"] > 0


@pytest.mark.parametrize(
    "last",
    [
        {ENDED: "failed", FAILURE: {"kind": "bug"}, "training_iteration": 1, "done": True},
        {ENDED: "cancelled", "training_iteration": 1, "done": True, "ditk_ray_attempt": 0},
    ],
)
def test_a_function_is_not_asked_about_a_trial_that_ended_without_an_evaluation(last):
    assert not build_stopper(looks_at_score_and_clock)("trial", last)
    never = build_stopper(MaximumIterationStopper(1))
    assert not never("trial", last)


def test_a_function_that_looks_for_what_is_not_reported_is_wrong():
    with pytest.raises(KeyError):
        build_stopper(looks_at_score_and_clock)("trial", {"reward": 1.0})


def test_a_function_that_looks_at_what_only_tune_knew_says_no_when_a_sweep_goes_on():
    stopper = build_stopper(looks_at_score_and_clock)
    stopper.replay("trial", [{"eval_value": 200}])
    assert stopper("trial", {"eval_value": 200, "time_total_s": 1.0})


def test_no_stopper_is_no_stopper():
    assert build_stopper(None) is None


@pytest.mark.parametrize("given", ["eval_value>=1", {"env_step": 1}, lambda *_: True])
def test_a_rule_never_ends_the_whole_sweep(given):
    stopper = build_stopper(given)
    stopper("trial", {"eval_value": 5, "env_step": 5})

    assert stopper.stop_all() is False


@pytest.mark.parametrize(
    "given",
    [
        "",
        "eval_value",
        "eval_value>=",
        "eval_value=195",
        "eval_value==195",
        "eval_value>=high",
        "eval_value>=1.2.3",
        "eval_value>=.",
        "eval_value>=1,",
        ">=195",
        {"eval_value": "high"},
        {"eval_value": True},
        195,
        [],
        [195],
        any_of(),
        {},
    ],
)
def test_what_is_no_rule_is_refused_with_an_example(given):
    with pytest.raises(BadConfigError, match=r"stopper: .*(\n.*)*'eval_value>=195'"):
        build_stopper(given)
