from __future__ import annotations

import pytest

from ditk_ray.report.data import gather
from ditk_ray.report.facts import usage_rows
from ditk_ray.report.usage import measure
from ditk_ray.tracking.record import TrialState
from tests.report.simulated import Simulation


def test_times_and_resources_are_added_up(tmp_path):
    sweep = Simulation(tmp_path)  # of 100 s; a trial has 2 CPUs, half a GPU and 5000 steps
    sweep.add([1.0] * 11, node="one")
    sweep.add([1.0] * 11, node="two", state=TrialState.STOPPED)
    sweep.add([1.0] * 11, node="two", state=TrialState.STOPPED)
    usage = measure(gather(sweep.write()))
    assert usage.wall_seconds == 100
    assert usage.trial_seconds == 60
    assert usage.at_once == pytest.approx(0.6)
    assert usage.cpu_hours == pytest.approx(2 * 60 / 3600)
    assert usage.gpu_hours == pytest.approx(0.5 * 60 / 3600)
    assert usage.steps == 3000
    assert (usage.early, usage.steps_saved) == (2, 8000)
    assert usage.is_spread
    assert [(node.node, node.trials, node.seconds) for node in usage.nodes] == [
        ("one", 1, 20),
        ("two", 2, 40),
    ]


def test_a_trial_that_waited_between_attempts_counts_what_it_trained(tmp_path):
    sweep = Simulation(tmp_path)
    trial = sweep.add([1.0], ended="2026-03-01T10:01:30+00:00")
    steps = [(0, 10), (0, 60), (1, 20), (1, 40)]  # the second attempt goes on after step 10
    rows = [
        {"eval_value": 1.0, "env_step": step, "time": step / 10, "ditk_ray_attempt": attempt}
        for attempt, step in steps
    ]
    sweep.write_metrics(trial, rows)
    assert measure(gather(sweep.write())).trial_seconds == 6 + 3


def test_several_seeds_take_their_steps_each(tmp_path):
    sweep = Simulation(tmp_path, seeds=[0, 1, 2])
    sweep.add([1.0] * 11)
    assert measure(gather(sweep.write())).steps == 3000


def test_what_the_record_does_not_tell_is_left_out(tmp_path):
    sweep = Simulation(tmp_path)
    sweep.record.job, sweep.record.started = {}, ""
    sweep.add([1.0] * 3, started=None, ended=None)
    data = gather(sweep.write())
    assert dict(usage_rows(data, measure(data))) == {
        "time of all trials together": "2.0s",
        "environment steps": "200",
    }
