from __future__ import annotations

import pytest

from ditk_ray.report.data import gather
from ditk_ray.report.headline import headline
from ditk_ray.tracking.record import SweepStatus, TrialState
from tests.report.simulated import Simulation


def said(sweep: Simulation) -> str:
    return headline(gather(sweep.write()))


def test_a_finished_sweep(simulation):
    simulation.add([1.0, 200.0])
    simulation.add([1.0])
    assert said(simulation) == (
        "2 trials in 1m40s: the best, trial_00000, "
        "reached eval_value 200 after 100 environment steps."
    )


def test_the_lowest_wins_where_the_mode_is_min(tmp_path):
    sweep = Simulation(tmp_path, "min")
    sweep.add([5.0])
    sweep.add([0.25, 7.0])
    assert "the best, trial_00001, reached eval_value 0.25 after 0" in said(sweep)


def test_a_single_trial(simulation):
    simulation.add([3.5])
    assert said(simulation).startswith("1 trial in 1m40s: trial_00000 reached eval_value 3.5")


def test_an_interrupted_sweep(simulation):
    simulation.record.status = SweepStatus.INTERRUPTED
    simulation.add([3.5])
    simulation.add([1.0], state=TrialState.PAUSED)
    assert said(simulation).startswith(
        "Interrupted after 1m40s, 1 of 2 trials ended: the best, trial_00000, reached"
    )


def test_a_running_sweep_without_a_score(simulation):
    simulation.record.status, simulation.record.ended = SweepStatus.RUNNING, None
    simulation.add([], state=TrialState.RUNNING)
    assert "0 of 1 trial ended: none got a score yet." in said(simulation)


def test_nothing_but_nan_is_no_score(simulation):
    simulation.add([float("nan")], state=TrialState.PRUNED)
    assert said(simulation) == "1 trial in 1m40s: none got a score."


@pytest.mark.parametrize(("failed", "words"), [(1, "It failed."), (3, "All of them failed.")])
def test_a_sweep_that_failed(simulation, failed, words):
    for _ in range(failed):
        simulation.fail("ValueError", "")
    assert said(simulation).endswith(f"none got a score. {words}")


def test_a_trial_that_reports_no_steps(simulation):
    trial = simulation.add([2.0])
    trial.best_metrics = {"eval_value": 2.0}
    assert said(simulation) == "1 trial in 1m40s: trial_00000 reached eval_value 2."
