"""Schedulers by name: their defaults, and what is refused before anything starts."""

from __future__ import annotations

import math
import pickle

import pytest
from ray import tune
from ray.tune.experiment import Trial
from ray.tune.schedulers import MedianStoppingRule, TrialScheduler

from ditk_ray.config.space import build_space
from ditk_ray.errors import BadConfigError
from ditk_ray.search.budget import Budget
from ditk_ray.search.schedulers import (
    SCHEDULERS,
    RankedASHA,
    allows_actor_reuse,
    build_scheduler,
    check_pairing,
    checkpoints_kept,
    deciding_name,
    needs_checkpoints,
    wants_all_trials,
)
from tests.search.spaces import RATE, every_kind

BUDGET = Budget(10_000, "env_step", 64.0)


def build(name, budget=BUDGET, space=None, **options):
    return build_scheduler(name, options, budget, space or every_kind())


def rungs(scheduler):
    return [milestone for milestone, _ in scheduler._brackets[0]._rungs]


@pytest.mark.parametrize("name", SCHEDULERS)
def test_a_scheduler_is_built_by_its_name_alone_and_left_to_tune_for_its_metric(name):
    scheduler = build(name)
    assert scheduler.set_search_properties("eval_value", "max")


@pytest.mark.parametrize("name", [name for name in SCHEDULERS if name != "fifo"])
def test_without_an_end_there_is_nothing_to_schedule(name):
    with pytest.raises(BadConfigError, match=r"the trials have no limit\n.*set max_env_step"):
        build(name, Budget())


def test_an_end_may_also_be_a_setting():
    assert build("asha", Budget(), max_t=900)._max_t == 900


def test_asha_decides_at_times_that_follow_from_evaluations_and_budget():
    assert rungs(build("asha")) == [3336, 1112]
    assert rungs(build("asha", Budget(10_000, "env_step", 700))) == [6300, 2100]
    assert rungs(build("asha", reduction_factor=2)) == [10_000, 5000, 2500]
    assert rungs(build("asha", grace_period=100)) == [8100, 2700, 900, 300, 100]


def test_the_time_axis_is_the_budgets():
    for name in ("asha", "median", "pbt", "pb2"):
        assert build(name)._time_attr == "env_step"
        assert build(name, Budget(100, "train_iter", 5))._time_attr == "train_iter"


@pytest.mark.parametrize("name", ["hyperband", "bohb"])
def test_hyperband_makes_as_many_brackets_as_there_are_decisions(name):
    for steps in (10_000, 10_000_000):
        scheduler = build(name, Budget(steps, "env_step", steps / 100))
        assert scheduler._s_max_1 == 3
        assert scheduler._max_t_attr == 9


def test_a_report_without_the_time_is_passed_over_by_hyperband():
    assert build("hyperband").on_trial_result(None, None, {"eval_value": 1.0}) == "CONTINUE"


def test_a_population_changes_what_a_running_trial_can_change():
    changed = build("pbt")._hyperparam_mutations
    assert changed["policy.other.eps.type"] == ["exp", "linear"]
    assert RATE in changed
    assert "policy.model.encoder_hidden_size_list" not in changed
    bounds = build("pb2")._hyperparam_bounds
    assert set(bounds) == {name for name, value in changed.items() if not isinstance(value, list)}
    assert bounds["policy.nstep"] == [1, 5]


def test_what_a_population_makes_of_parameters_stays_in_the_space():
    inside = build("pbt")._custom_explore_fn
    made = {"policy.discount_factor": 1.19, "policy.learn.batch_size": 77, "other": 3}
    kept = {"policy.discount_factor": 0.999, "policy.learn.batch_size": 64, "other": 3}
    assert pickle.loads(pickle.dumps(inside))(made) == kept


@pytest.mark.parametrize("name", ["pbt", "pb2"])
def test_a_population_needs_something_that_can_change(name):
    space = build_space({"policy": {"model": {"dueling": tune.choice([True, False])}}})
    with pytest.raises(BadConfigError, match=r"can be changed\n.*policy.model"):
        build(name, space=space)


def test_exploits_leave_time_for_evaluations():
    assert build("pbt")._perturbation_interval == 1000
    assert build("pbt", Budget(10_000, "env_step", 900))._perturbation_interval == 1800


def test_resources_are_given_by_a_scheduler_of_choice():
    scheduler = build("resource_changing", base="median", min_samples_required=5)
    assert isinstance(scheduler._base_scheduler, MedianStoppingRule)
    assert scheduler._base_scheduler._min_samples_required == 5


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("asha", {"grace_perod": 3}, "did you mean 'grace_period'"),
        ("asha", {"reduction_factor": "x"}, "is 'x'; it has to be: float"),
        ("asha", {"reduction_factor": 0}, "refuses: Reduction Factor not valid"),
        ("asha", {"time_attr": "x"}, "there is no such setting"),
        ("pbt", {"quantile_fraction": 0.9}, "refuses: .*quantile_fraction"),
        ("resource_changing", {"base": "asah"}, "did you mean 'asha'"),
        ("resource_changing", {"base": "resource_changing"}, "cannot be 'resource_changing'"),
        ("resource_changing", {"base": "median", "max_t": 4}, "max_t: there is no such setting"),
        ("fifo", {"max_t": 4}, "it has no settings"),
    ],
)
def test_a_wrong_setting_is_refused_with_what_would_be_right(name, options, message):
    with pytest.raises(BadConfigError, match=message):
        build(name, **options)


def test_an_unknown_scheduler_suggests_the_nearest():
    with pytest.raises(BadConfigError, match=r"there is no 'hyperbnad'\n.*'hyperband'"):
        build("hyperbnad")


def test_schedulers_that_pause_trials_get_checkpoints():
    pausing = {name for name in SCHEDULERS if needs_checkpoints(build(name))}
    assert pausing == {"hyperband", "bohb", "pbt", "pb2", "resource_changing"}
    assert needs_checkpoints(build("median", hard_stop=False))
    assert needs_checkpoints(MedianStoppingRule())
    assert not needs_checkpoints(None)
    assert checkpoints_kept(build("pbt")) > checkpoints_kept(build("hyperband"))


def test_schedulers_that_compare_waiting_trials_want_them_all():
    wanting = {name for name in SCHEDULERS if wants_all_trials(build(name))}
    assert wanting == {"hyperband", "pbt", "pb2"}
    assert wants_all_trials(build("resource_changing", base="pbt"))


def test_checkpoints_that_others_go_on_from_are_kept_also_inside_another_scheduler():
    inside = build("resource_changing", base="pbt")
    assert checkpoints_kept(inside) == checkpoints_kept(build("pbt"))


@pytest.mark.parametrize("base", ["bohb", "resource_changing"])
def test_some_schedulers_cannot_be_a_base(base):
    with pytest.raises(BadConfigError, match=r"scheduler_options\.base: "):
        build("resource_changing", base=base)
    with pytest.raises(BadConfigError, match=r"scheduler_options\.base: "):
        deciding_name("resource_changing", {"base": base})


def test_searchers_are_paired_with_the_scheduler_that_decides():
    assert deciding_name("resource_changing", {}) == "asha"
    assert deciding_name("resource_changing", {"base": "pbt"}) == "pbt"
    assert deciding_name("median", {}) == "median"


@pytest.mark.parametrize("name", ["hyperband", "bohb"])
@pytest.mark.parametrize("setting", ["grace_period", "reduction_factor"])
def test_units_and_factors_that_divide_nothing_are_refused(name, setting):
    nothing = {"grace_period": 0, "reduction_factor": 1}
    with pytest.raises(BadConfigError, match=rf"refuses: {setting} has to be more than"):
        build(name, **{setting: nothing[setting]})


def test_only_where_resources_change_are_actors_not_shared():
    sharing = {name for name in SCHEDULERS if not allows_actor_reuse(build(name))}
    assert sharing == {"resource_changing"}


@pytest.mark.parametrize(
    ("searcher", "scheduler", "message"),
    [
        ("bohb", "asha", "only work together"),
        ("tpe", "bohb", "only work together"),
        ("tpe", "pbt", "use the searcher 'random'"),
        ("gp", "pb2", "use the searcher 'random'"),
        ("tpe", "hyperband", "use 'asha' with it"),
    ],
)
def test_pairs_that_cannot_work_are_refused(searcher, scheduler, message):
    with pytest.raises(BadConfigError, match=message):
        check_pairing(searcher, scheduler)


@pytest.mark.parametrize(
    ("searcher", "scheduler"),
    [("tpe", "asha"), ("bohb", "bohb"), ("random", "pbt"), ("grid", "hyperband")],
)
def test_pairs_that_work_are_not_refused(searcher, scheduler):
    check_pairing(searcher, scheduler)


def test_the_median_rule_lets_no_trial_wait_for_others():
    assert math.isinf(build("median")._min_time_slice)


# Early stopping by ranks: who continues at which rung

FIRST, SECOND = 100, 300


def decisions(reports):
    """Return for each report, of a trial at a time with a score, whether the trial goes on."""
    scheduler = RankedASHA(time_attr="env_step", max_t=800, grace_period=FIRST, reduction_factor=3)
    scheduler.set_search_properties("eval_value", "max")
    trials = {name: Trial("unknown", trial_id=name, stub=True) for name, _, _ in reports}
    for trial in trials.values():
        scheduler.on_trial_add(None, trial)
    told = [
        scheduler.on_trial_result(None, trials[name], {"env_step": step, "eval_value": score})
        for name, step, score in reports
    ]
    return [action == TrialScheduler.CONTINUE for action in told]


def at_first_rung(*scores):
    return decisions([(f"trial_{number}", FIRST, score) for number, score in enumerate(scores)])


def test_of_trials_that_score_the_same_only_the_first_goes_on():
    assert at_first_rung(*[9.5] * 9) == [True] + [False] * 8


def test_a_better_trial_goes_on_whenever_it_comes():
    assert at_first_rung(9.5, 9.5, 9.4, 9.5, 12.0, 9.5) == [True, False, False, False, True, False]


def test_the_best_third_of_those_that_came_goes_on():
    goes_on = at_first_rung(6, 5, 4, 3, 5.5, 5.7)
    assert goes_on == [True, False, False, False, True, True]


def test_a_trial_that_meets_nobody_at_a_rung_is_compared_with_those_stopped_before():
    early = [("early", FIRST, 9), ("better", FIRST, 12), ("early", SECOND, 11)]
    assert decisions(early) == [True, True, False]


def test_a_trial_that_has_become_the_best_of_all_goes_on_at_the_second_rung():
    late = [("slow", FIRST, 9), ("better", FIRST, 12), ("slow", SECOND, 13)]
    assert decisions(late) == [True, True, True]


def test_a_trial_is_left_alone_between_two_rungs():
    assert decisions([("a", FIRST, 20), ("b", FIRST, 30), ("a", 200, 1)])[-1]


def test_a_trial_whose_first_report_is_late_is_judged_where_it_stands():
    assert decisions([("a", FIRST, 20), ("late", SECOND, 10)]) == [True, False]


def test_where_less_is_better_the_least_goes_on():
    scheduler = RankedASHA(time_attr="env_step", max_t=800, grace_period=FIRST)
    scheduler.set_search_properties("loss", "min")
    told = []
    for name, loss in (("a", 3.0), ("b", 4.0), ("c", 2.0)):
        trial = Trial("unknown", trial_id=name, stub=True)
        scheduler.on_trial_add(None, trial)
        told.append(scheduler.on_trial_result(None, trial, {"env_step": FIRST, "loss": loss}))
    assert told == ["CONTINUE", "STOP", "CONTINUE"]
