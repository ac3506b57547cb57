from __future__ import annotations

import optuna
import pytest

from ditk_ray.record.record import TrialState
from ditk_ray.report.data import gather
from ditk_ray.report.importance import (
    FANOVA_TRIALS,
    MIN_TRIALS,
    caption,
    importance_chart,
    importances,
)
from tests.report.simulated import Simulation, simulate

RATE = "policy.learn.learning_rate"


def judged(sweep: Simulation):
    return importances(gather(sweep.write()))


def test_the_parameter_that_matters_is_found(tmp_path):
    found = judged(simulate(tmp_path, 40, 5))
    assert (found.method, found.trials) == ("fANOVA", 40)
    assert next(iter(found.shares)) == RATE
    assert sum(found.shares.values()) == pytest.approx(1)
    assert found.left_out == ["policy.other.eps.decay"]


def test_with_many_trials_conditional_parameters_are_judged_too(tmp_path):
    found = judged(simulate(tmp_path, FANOVA_TRIALS + 50, 5))
    assert found.method == "PED-ANOVA"
    assert next(iter(found.shares)) == RATE
    assert "policy.other.eps.decay" in found.shares
    assert found.left_out == []


@pytest.mark.parametrize("mode", ["max", "min"])
def test_the_mode_decides_which_trials_are_good(tmp_path, mode):
    sweep = Simulation(tmp_path, mode, space={})
    for place in range(150):
        # Only low values of `a` make a score low; high scores come with any.
        score = float(place % 10 == 0) * -100 + place % 7
        sweep.add([score], {"a": 0.01 * (place % 10), "b": float(place % 13)})
    shares = judged(sweep).shares
    assert (shares["a"] > 0.9) == (mode == "min")


def test_too_few_trials_say_so(tmp_path):
    found = judged(simulate(tmp_path, MIN_TRIALS - 1, 5))
    assert not found.shares
    assert found.reason == "That takes at least 15 finished trials; there are 14."
    assert importance_chart(found, {}) is None
    assert caption(found, {}) == found.reason


def test_scores_that_do_not_differ_say_so(simulation):
    for place in range(20):
        simulation.add([200.0], {"a": place})
    assert judged(simulation).reason == "All finished trials have the same score."


def test_trials_that_failed_or_still_run_do_not_count(simulation):
    for place in range(20):
        state = TrialState.FAILED if place < 10 else TrialState.RUNNING
        simulation.add([float(place)], {"a": place}, state)
    assert judged(simulation).trials == 0


def test_parameters_of_any_type_are_judged_and_constant_ones_left_out(simulation):
    for place in range(20):
        kind = [None, "x", [1, 2], True][place % 4]
        params = {"kind": kind, "constant": 5, "number": place / 7}
        simulation.add([float(place % 4)], params)
    assert set(judged(simulation).shares) == {"kind", "number"}


def test_optuna_is_left_as_it_was(tmp_path, capfd):
    before = optuna.logging.get_verbosity()
    judged(simulate(tmp_path, 20, 5))
    assert optuna.logging.get_verbosity() == before
    assert capfd.readouterr().err == ""
