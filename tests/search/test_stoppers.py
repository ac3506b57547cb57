"""Rules that end trials early."""

from __future__ import annotations

import math
import pickle
import random
import time
from typing import Any

import cloudpickle
import pytest
from ray.tune.stopper import MaximumIterationStopper, Stopper, TimeoutStopper

from ditk_ray import all_of, any_of
from ditk_ray.config.terms import Objective
from ditk_ray.errors import BadConfigError
from ditk_ray.search.stoppers import RuleStopper, build_stopper
from ditk_ray.trial.reports import ATTEMPT, ENDED, FAILURE


@pytest.mark.parametrize(
    ("rule", "result", "ends"),
    [
        ("eval_value>=195", {"eval_value": 195}, True),
        ("eval_value>=195", {"eval_value": 194.9}, False),
        ("eval_value>195", {"eval_value": 195}, False),
        ("eval_value<=-1.5", {"eval_value": -1.5}, True),
        ("eval_value < 1e-3", {"eval_value": 0.0005}, True),
        (" eval_value >= +1E2 ", {"eval_value": 100}, True),
        ("eval_value>=.5", {"eval_value": 0.5}, True),
        # One of several is enough.
        ("eval_value>=195, env_step>=1000", {"eval_value": 200, "env_step": 10}, True),
        ("eval_value>=195, env_step>=1000", {"eval_value": 10, "env_step": 1000}, True),
        ("eval_value>=195, env_step>=1000", {"eval_value": 10, "env_step": 10}, False),
        # What has no value, or is no number, ends nothing.
        ("eval_value>=195", {}, False),
        ("eval_value>=195", {"eval_value": None}, False),
        ("eval_value>=195", {"eval_value": math.nan}, False),
        ("trial_id>=195", {"trial_id": "abc_00001"}, False),
        # A metric may have a path for a name.
        ("eval/return-mean.0>=1", {"eval/return-mean.0": 2}, True),
        # A dict says at which value each metric ends a trial.
        ({"env_step": 1000, "eval_value": 1e-05}, {"env_step": 1000}, True),
        ({"env_step": 1000, "eval_value": 1e-05}, {"eval_value": 0.1}, True),
        ({"env_step": 1000, "eval_value": 1e-05}, {"env_step": 999, "eval_value": 0}, False),
        # Several go together as they read.
        ("a>=1 and b>=1", {"a": 1, "b": 1}, True),
        ("a>=1 and b>=1", {"a": 1, "b": 0}, False),
        ("a>=1 or b>=1 and c>=1", {"a": 1, "b": 0, "c": 0}, True),
        ("(a>=1 or b>=1) and c>=1", {"a": 1, "b": 0, "c": 0}, False),
        ("(a>=1, b>=1) and c>=1", {"a": 0, "b": 1, "c": 1}, True),
        ("a>=1, b>=1 and c>=1", {"a": 0, "b": 1, "c": 1}, True),
        ("a>=1 AND (b>=1 OR c>=1)", {"a": 1, "b": 0, "c": 1}, True),
        ("((a>=1))", {"a": 1}, True),
    ],
)
def test_a_rule_ends_a_trial_as_soon_as_it_holds(rule, result, ends):
    assert build_stopper(rule)("trial", result) is ends


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


def told(stopper: RuleStopper, *values: Any, trial: str = "t", start: int = 0, **more: Any):
    """Show a trial's evaluations to a stopper, one every hundred steps; return its answers."""
    answers = []
    for number, value in enumerate(values, start):
        numbered = {"env_step": 100 * number, "training_iteration": number + 1}
        answers.append(stopper(trial, {"eval_value": value, **numbered, **more}))
    return answers


def ends_at(stopper: RuleStopper, *values: Any, **more: Any) -> int | None:
    """Return the number of the evaluation that ends the trial."""
    answers = told(stopper, *values, **more)
    return answers.index(True) if True in answers else None


# A plateau


def test_a_plateau_is_no_improvement_over_so_many_evaluations():
    assert ends_at(build_stopper("plateau(eval_value, 3)"), 1, 5, 2, 5, 4) == 4
    assert ends_at(build_stopper("plateau(eval_value, 3)"), 1, 5, 2, 6, 4, 7, 8) is None


def test_a_plateau_follows_the_mode_of_its_metric():
    falling = [9, 8, 7, 6, 5]
    rule = "plateau(eval_value, 2)"
    assert ends_at(build_stopper(rule, [Objective("eval_value", "max")]), *falling) == 2
    assert ends_at(build_stopper(rule, [Objective("eval_value", "min")]), *falling) is None
    assert ends_at(build_stopper(rule, [Objective("loss", "min")]), *falling) is None
    both = [Objective("score", "max"), Objective("eval_value", "min")]
    assert ends_at(build_stopper(rule, both), *falling) is None


@pytest.mark.parametrize(
    ("rule", "end"),
    [("plateau(eval_value, 2, 5)", 2), ("plateau(eval_value, 2, 3)", None),
     ("plateau(eval_value, 2, 5%)", 2), ("plateau(eval_value, 2, 3%)", None)],
)  # fmt: skip
def test_a_plateau_may_demand_an_improvement_by_an_amount_or_a_share(rule, end):
    assert ends_at(build_stopper(rule), 100, 102, 104, 106, 108.5) == end


@pytest.mark.parametrize("mode", ["max", "min"])
def test_a_plateau_over_lines_that_are_gone_back_on_is_what_all_values_say(mode):
    rng, sign = random.Random(3), 1 if mode == "max" else -1
    stopper = build_stopper("plateau(eval_value, 3, 1)", [Objective("eval_value", mode)])
    line: list[float] = []
    ends = 0
    for _ in range(500):
        del line[len(line) - rng.choice([0] * 5 + [rng.randrange(5)]) :]
        line.append(rng.choice([math.nan, rng.uniform(0, 9), rng.uniform(0, 90)]))
        scores = [sign * value if value == value else -math.inf for value in line]
        best, old = max(scores), max(scores[:-3], default=-math.inf)
        expected = len(line) > 3 and not (best > old if math.isinf(old) else best - old > 1)
        assert told(stopper, line[-1], start=len(line) - 1) == [expected]
        ends += expected
        if len(line) > 30:
            line = []
    assert 100 < ends < 400


def test_a_long_training_is_looked_at_in_little_time():
    stopper = build_stopper("plateau(eval_value, 5) and mean(eval_value, 3)>=9")
    begun = time.process_time()
    for number in range(1, 10001):
        stopper("t", {"eval_value": 1.0, "training_iteration": number})
    assert time.process_time() - begun < 2


def test_a_score_that_is_no_number_is_no_improvement_and_none_is_no_evaluation():
    assert ends_at(build_stopper("plateau(eval_value, 2)"), 1, math.nan, math.nan) == 2
    assert ends_at(build_stopper("plateau(eval_value, 2)"), math.nan, 1, 2, 3) is None
    assert ends_at(build_stopper("plateau(eval_value, 2)"), 1, None, None, None) is None


# A mean


def test_a_mean_is_over_the_last_evaluations_and_not_before_there_are_so_many():
    rule = "mean(eval_value, 3)>=195"
    assert ends_at(build_stopper(rule), 200, 200) is None
    assert ends_at(build_stopper(rule), 10, 200, 200, 190) == 3
    assert ends_at(build_stopper(rule), 200, math.nan, 200, 200, 200) == 4


def test_trials_have_means_of_their_own():
    stopper = build_stopper("mean(eval_value, 2)>=195")
    assert told(stopper, 200, trial="a") == [False]
    assert told(stopper, 200, trial="b") == [False]
    assert told(stopper, 200, trial="a", start=1) == [True]


# NaN


def test_nan_looks_at_what_is_optimised():
    stopper = build_stopper("nan", [Objective("loss", "min"), Objective("score", "max")])
    assert not stopper("t", {"loss": 1.0, "other": math.nan})
    assert stopper("t", {"loss": math.nan})
    assert stopper("t", {"loss": 1.0, "score": math.nan})
    assert build_stopper("nan(other)")("t", {"other": math.nan})


# Time


@pytest.mark.parametrize(
    ("rule", "seconds"), [("time>=10m", 600), ("time>=90", 90), ("time_total_s>=1.5h", 5400)]
)
def test_a_time_may_have_a_unit(rule, seconds):
    stopper, name = build_stopper(rule), rule.partition(">")[0]
    assert not stopper("t", {name: seconds - 1})
    assert stopper("t", {name: seconds})


# Rules for the sweep


def test_steps_of_the_sweep_are_those_of_all_trials():
    stopper = build_stopper("sweep.env_step>=1e3")
    stopper("a", {"env_step": 300})
    stopper("a", {"env_step": 600})
    stopper("b", {"env_step": 300})
    assert not stopper.stop_all()
    stopper.end_trial("a")
    stopper("c", {"env_step": 99})
    assert not stopper.stop_all()
    stopper("c", {"env_step": 100})
    assert stopper.stop_all()
    assert stopper.why == "sweep.env_step>=1e3"


def test_the_steps_of_all_seeds_of_a_trial_count_for_the_sweep():
    stopper = build_stopper(["sweep.env_step>=1000", "eval_value>=195"], seeds=3)
    stopper("a", {"env_step": 200.0})
    stopper("b", {"env_step": 133.0})
    assert not stopper.stop_all()
    stopper("b", {"env_step": 134.0})
    assert stopper.stop_all()


def test_a_score_that_any_trial_reached_ends_the_sweep():
    stopper = build_stopper("sweep.eval_value>=195")
    assert told(stopper, 100, 190) == [False, False]
    assert not stopper.stop_all()
    told(stopper, 195, trial="other")
    told(stopper, 3, trial="third")
    assert stopper.stop_all()


def test_a_mean_that_any_trial_held_ends_the_sweep():
    stopper = build_stopper("sweep.mean(eval_value, 2)>=195")
    for trial in ("a", "b"):
        told(stopper, 200, trial=trial)
    assert not stopper.stop_all()
    told(stopper, 190, trial="a", start=1)
    assert stopper.stop_all()
    assert stopper.why == "sweep.mean(eval_value, 2)>=195"


def test_trials_that_ended_in_whatever_way_are_counted_once():
    stopper = build_stopper("sweep.trials>=2")
    told(stopper, 1, 2, 3)
    for _ in range(3):
        stopper.end_trial("t")
    assert not stopper.stop_all()
    stopper.end_trial("one that never reported")
    assert stopper.stop_all()


def test_the_time_of_a_sweep_begins_when_it_is_asked_for_or_begun():
    stopper = build_stopper("sweep.time>=0.2")
    assert not stopper.stop_all()
    time.sleep(0.25)
    assert stopper.stop_all()
    later = build_stopper("sweep.time>=2h")
    later.begin(7199)
    assert not later.stop_all()
    later.begin(7201)
    assert later.stop_all()


def test_the_time_that_a_saved_stopper_has_counted_is_kept():
    stopper = build_stopper("sweep.time>=2h")
    stopper.begin(7200 - 0.2)
    time.sleep(0.25)
    assert pickle.loads(pickle.dumps(stopper)).stop_all()


# Together


def test_every_part_sees_every_result():
    stopper = build_stopper("env_step>=300 and mean(eval_value, 3)>=10")
    assert told(stopper, 10, 10, 10, 10) == [False, False, False, True]


def test_a_rule_about_trials_and_the_sweep_ends_trials():
    stopper = build_stopper("eval_value<50 and sweep.trials>=1")
    assert told(stopper, 10) == [False]
    stopper.end_trial("another")
    assert not stopper.stop_all()
    assert told(stopper, 60, 10, start=1) == [False, True]
    assert not stopper.stop_all()


def test_of_alternatives_one_may_end_a_trial_and_another_the_sweep():
    stopper = build_stopper("eval_value<0 or sweep.eval_value>=195 and sweep.trials>=1")
    assert told(stopper, -1, trial="bad") == [True]
    assert not stopper.stop_all()
    stopper.end_trial("bad")
    told(stopper, 200, trial="good")
    assert stopper.stop_all()
    assert stopper.why == "sweep.eval_value>=195 and sweep.trials>=1"


def own(trial_id: str, result: dict[str, Any]) -> bool:
    return bool(result["eval_value"] > 5)


def test_rules_functions_and_stoppers_of_tune_are_put_together():
    both = build_stopper(all_of("env_step>=100", own))
    assert told(both, 9, 3, 9) == [False, False, True]
    assert both.reason("t") == "env_step>=100 and own"
    one = build_stopper(any_of(TimeoutStopper(1000), {"env_step": 100}))
    assert told(one, 0, 0) == [False, True]
    assert not one.stop_all()
    assert ends_at(build_stopper(["eval_value>=5", own]), 1, 5) == 1
    nested = build_stopper(all_of(any_of("eval_value>=5", own), "env_step>=100"))
    assert told(nested, 5, 5) == [False, True]


def test_a_stopper_of_tune_that_would_end_the_sweep_ends_it():
    stopper = build_stopper(any_of("eval_value>=195", TimeoutStopper(0)))
    assert stopper.stop_all()
    assert stopper.why == "TimeoutStopper"


def test_what_would_end_the_sweep_holds_for_each_of_its_trials():
    stopper = build_stopper(all_of(TimeoutStopper(0), "env_step>=100"))
    assert told(stopper, 1, 1) == [False, True]
    assert not stopper.stop_all()


def test_all_that_is_put_together_can_be_written():
    nested = build_stopper(all_of("a>=1", own, any_of(TimeoutStopper(1), {"b": 2})))
    assert str(nested) == "a>=1 and own and (TimeoutStopper or b>=2)"
    assert str(build_stopper(["a>=1 and b>=2", own])) == "(a>=1 and b>=2) or own"


# Reasons


def test_a_trial_s_reason_is_the_part_of_the_rule_that_held():
    stopper = build_stopper("eval_value>=195, plateau(eval_value,2) and env_step>=100")
    assert ends_at(stopper, 5, 5, 5) == 2
    assert stopper.reason("t") == "plateau(eval_value,2) and env_step>=100"
    assert stopper.reason("another") is None
    stopper.end_trial("t")
    assert stopper.reason("t") is None


def test_a_reason_names_the_alternative_that_held_also_inside_an_and():
    stopper = build_stopper(all_of("(env_step>=100 or nan) and eval_value>=0", own))
    assert ends_at(stopper, 9, 9) == 1
    assert stopper.reason("t") == "env_step>=100 and eval_value>=0 and own"


def test_nothing_is_kept_of_trials_that_have_ended():
    stopper = build_stopper(
        "plateau(eval_value, 9) or mean(eval_value, 9)>=1e9 or sweep.env_step>=1e9 "
        "or sweep.mean(eval_value, 9)>=1e9 or nan"
    )
    for number in range(100):
        told(stopper, 1, 2, 3, trial=f"trial_{number}")
        stopper.end_trial(f"trial_{number}")
    long = len(pickle.dumps(stopper))
    for number in range(100):
        told(stopper, 1, 2, 3, trial=f"trial_{number}")
    assert len(pickle.dumps(stopper)) > 2 * long


# Again and later


def test_an_attempt_that_goes_on_from_a_checkpoint_does_not_count_twice():
    stopper = build_stopper("plateau(eval_value, 4)")
    assert told(stopper, 1, 2, 2, 2, ditk_ray_attempt=0)[-1] is False
    # Steps 200 and 300 are done again, and take the place of what was lost.
    assert told(stopper, 2, 2, 2, 2, start=2, ditk_ray_attempt=1) == [False, False, False, True]


def test_the_last_report_of_a_training_is_no_further_evaluation():
    stopper = build_stopper("sweep.mean(eval_value, 3)>=195")
    told(stopper, 1, 200, 200)
    told(stopper, 200, start=2, ditk_ray_ended="training")
    assert not stopper.stop_all()


def test_a_stopper_is_brought_to_where_it_was_by_earlier_results():
    stopper = build_stopper("plateau(eval_value, 3), sweep.env_step>=1000")
    earlier = [{"eval_value": 5, "env_step": step} for step in (0, 100, 200)]
    stopper.replay("t", earlier)
    stopper.replay("over", [{"eval_value": 9, "env_step": 600}])
    stopper.end_trial("over")
    assert not stopper.stop_all()
    assert told(stopper, 5, start=3) == [True]
    told(stopper, 5, start=4)
    assert stopper.stop_all()


def test_an_attempt_that_fails_at_once_takes_no_steps_from_the_sweep():
    stopper = build_stopper("sweep.env_step>=1000 or training_iteration>=99")
    stopper("a", {"env_step": 900, "training_iteration": 1, ATTEMPT: 0})
    stopper("a", {ENDED: "failed", FAILURE: {}, "training_iteration": 2, ATTEMPT: 1})
    stopper.end_trial("a")
    stopper("b", {"env_step": 100, "training_iteration": 1, ATTEMPT: 0})
    assert stopper.stop_all()


def test_a_stopper_is_saved_with_its_state():
    stopper = build_stopper(all_of("plateau(eval_value, 2) or nan", own))
    told(stopper, 9, 8)
    again = pickle.loads(cloudpickle.dumps(stopper))
    assert told(again, 7, start=2) == [True]
    assert again.metrics == {"eval_value"}


# Mistakes


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ("plateu(eval_value, 5)", "at 'plateu' (character 1): there is no such function\n"
         "    did you mean 'plateau'?"),
        ("env_step>=9 and eval_valu", "at the end: expected >=, <=, > or < after 'eval_valu'\n"
         "    did you mean 'eval_value'"),
        ("eval_value>=195 and", "at the end: expected a rule"),
        ("(a>=1 or b>=2", "at the end: expected ')'"),
        ("a>=1) or b>=2", "at ')' (character 5): expected `and`, `or` or the end"),
        ("a>=1 b>=2", "at 'b' (character 6): expected `and`, `or` or the end"),
        ("plateau(eval_value)", "at ')' (character 19): expected ','"),
        ("plateau(eval_value 5)", "at '5' (character 20): expected ','"),
        ("plateau(eval_value,)", "at ')' (character 20): expected a number"),
        ("plateau(eval_value, 0.5)", "at '0.5' (character 21): expected a number of evaluations"),
        ("plateau(eval_value, 5, 1m)", "at '1m' (character 24): expected an improvement"),
        ("plateau(eval_value, 5, -1)", "at '-1' (character 24): expected an improvement"),
        ("plateau(5, 5)", "at '5' (character 9): expected the name of a metric"),
        ("mean(eval_value, 3)", "at the end: expected >=, <=, > or < after 'mean'"),
        ("mean(eval_value, 3, 4)>=5", "at ',' (character 19): expected ')'"),
        ("mean(eval_value, 3)==5", "at '==' (character 20): expected >=, <=, > or < after 'mean'"),
        ("env_step>=10m", "at '10m' (character 11): expected a plain number to compare"),
        ("time>=10x", "at '10x' (character 7): expected a number, or a time such as 10m"),
        ("time>=10%", "at '10%' (character 7): expected a number, or a time such as 10m"),
        ("sweep.plateau(eval_value, 5)", "at 'sweep.plateau' (character 1): there is no such"),
        ("eval_value==5", "at '==' (character 11): expected >=, <=, > or <"),
        ("eval_value>=$5", "at '$' (character 13): expected a plain number"),
        ("eval_value>=best 5", "at 'best' (character 13): expected a plain number"),
        ("eval_valu is 5", "at 'is' (character 11): expected >=, <=, > or < after 'eval_valu'\n"
         "    did you mean 'eval_value'"),
        ("eval_value≥5", "at '≥' (character 11): expected >=, <=, > or <"),
        ("5<=eval_value", "at '5' (character 1): expected a rule"),
        ("nan()", "at ')' (character 5): expected the name of a metric"),
    ],
)  # fmt: skip
def test_a_mistake_is_shown_at_its_place(rule, said):
    with pytest.raises(BadConfigError) as caught:
        build_stopper(rule)
    assert f"stopper: {rule!r}, {said}" in str(caught.value)
