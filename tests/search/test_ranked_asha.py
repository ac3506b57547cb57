"""Early stopping by ranks: who goes on at which rung."""

from __future__ import annotations

from ray.tune.experiment import Trial
from ray.tune.schedulers import TrialScheduler

from ditk_ray.search.ranked_asha import RankedASHA

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
