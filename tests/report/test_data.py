from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from ditk_ray.record.record import TrialState
from ditk_ray.report.data import build_axes, gather, read_curve, short_names, spread, thinned
from ditk_ray.report.sections import node_rows, usage_rows
from tests.report.simulated import Simulation


def write(folder: Path, *rows: dict[str, Any]) -> Path:
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def test_the_line_that_ends_a_trial_is_no_evaluation_of_its_own(tmp_path):
    row = {"eval_value": 3.0, "env_step": 100, "time": 2.0, "ditk_ray_attempt": 0}
    write(tmp_path, row, {**row, "ditk_ray_result": [1], "ditk_ray_ended": "training"})
    curve = read_curve(tmp_path, "eval_value")
    assert (curve.steps, curve.scores, curve.evaluations) == ([100], [3.0], 1)
    assert (curve.seconds, curve.attempts) == (2.0, 1)


def test_a_score_that_only_the_last_line_has_is_kept(tmp_path):
    write(tmp_path, {"env_step": 100}, {"env_step": 100, "own": 7, "ditk_ray_ended": "x"})
    assert read_curve(tmp_path, "own").scores == [None, 7]


def test_a_trial_without_evaluations_has_an_empty_curve(tmp_path):
    curve = read_curve(tmp_path / "missing", "eval_value")
    assert (curve.evaluations, curve.attempts, curve.seconds) == (0, 0, 0.0)


def test_what_is_no_number_is_a_gap(tmp_path):
    rows = [{"eval_value": value, "env_step": 1} for value in (1.0, None, True, "2", 3)]
    assert read_curve(write(tmp_path, *rows), "eval_value").scores == [1.0, None, None, None, 3]


def attempt(number: int, *evaluations: tuple[int, float], first: int = 1) -> list[dict[str, Any]]:
    """Return the lines of an attempt that was at these steps at these seconds.

    Its reports are numbered from `first` on: 1 if it began anew, more if it resumed.
    """
    return [
        {"eval_value": 1.0, "env_step": step, "time": seconds}
        | {"ditk_ray_attempt": number, "ditk_ray_report": report}
        for report, (step, seconds) in enumerate(evaluations, first)
    ]


def test_another_attempt_begins_after_a_gap(tmp_path):
    write(tmp_path, *attempt(0, (0, 1.0), (100, 9.0)), *attempt(1, (50, 5.0)))
    curve = read_curve(tmp_path, "eval_value")
    assert curve.steps == [0, 100, None, 50]
    assert curve.scores == [1.0, 1.0, None, 1.0]
    assert curve.attempts == 2


def test_time_is_added_up_over_attempts_whether_their_clock_goes_on_or_not(tmp_path):
    first = attempt(0, (0, 1.0), (50, 5.0), (100, 9.0))
    write(tmp_path, *first, *attempt(1, (60, 6.0), (100, 10.0), first=3))
    assert read_curve(tmp_path, "eval_value").seconds == 9.0 + 5.0
    write(tmp_path, *first, *attempt(1, (60, 0.5), (100, 4.0), first=3))
    assert read_curve(tmp_path, "eval_value").seconds == 9.0 + 4.0
    write(tmp_path, *first, *attempt(1, (0, 0.5), (100, 4.0)))
    assert read_curve(tmp_path, "eval_value").seconds == 9.0 + 4.0


def test_seeds_have_curves_of_their_own(tmp_path):
    rows = [{"eval_value": 2.0, "eval_value_seed_0": 1.0, "eval_value_seed_7": 3.0}] * 2
    assert read_curve(write(tmp_path, *rows), "eval_value").seeds == {
        "0": [1.0, 1.0],
        "7": [3.0, 3.0],
    }


def test_thinning_keeps_the_ends_the_extremes_and_the_gaps():
    draw = random.Random(1)
    scores: list[float | None] = [draw.gauss(0, 1) for _ in range(20_000)]
    scores[5_000], scores[7_000], scores[9_000] = 50.0, -50.0, None
    kept = thinned(scores, 400)
    assert len(kept) <= 410
    assert {0, 5_000, 7_000, 9_000, 19_999} <= set(kept)
    for start in range(0, 20_000, 1000):  # what is seen of any stretch stays as high and as low
        stretch = range(start, start + 1000)
        own = [scores[place] for place in stretch if scores[place] is not None]
        left = [scores[place] for place in kept if place in stretch and scores[place] is not None]
        assert (min(own), max(own)) == (min(left), max(left))


def test_a_short_curve_is_kept_whole():
    assert thinned([1.0, None, 2.0], 60) == [0, 1, 2]


def test_times_and_resources_are_added_up(tmp_path):
    sweep = Simulation(tmp_path)  # of 100 s; a trial has 2 CPUs, half a GPU and 5000 steps
    sweep.add([1.0] * 11, node="one")
    sweep.add([1.0] * 11, node="two", state=TrialState.STOPPED)
    sweep.add([1.0] * 11, node="two", state=TrialState.STOPPED)
    data = gather(sweep.write())
    assert usage_rows(data) == [
        ("wall time of the sweep", "1m40s"),
        ("time of all trials together", "1m00s"),
        ("trials at once, on average", "0.6"),
        ("CPU-hours", "0.033"),
        ("GPU-hours", "0.0083"),
        ("environment steps", "3,000"),
        ("ended early", "2 of 3 trials, which saved 8,000 environment steps"),
    ]
    assert node_rows(data) == [("one", "1 trial, 20s"), ("two", "2 trials, 40s")]


def test_a_trial_that_waited_between_attempts_counts_what_it_trained(tmp_path):
    sweep = Simulation(tmp_path)
    trial = sweep.add([1.0], ended="2026-03-01T10:01:30+00:00")
    resumed = attempt(1, (20, 2.0), (40, 4.0), first=2)  # after step 10
    sweep.write_metrics(trial, [*attempt(0, (10, 1.0), (60, 6.0)), *resumed])
    assert gather(sweep.write()).trials[0].seconds == 6 + 3


def test_several_seeds_take_their_steps_each(tmp_path):
    sweep = Simulation(tmp_path, seeds=[0, 1, 2])
    sweep.add([1.0] * 11)
    assert gather(sweep.write()).steps == 3000


def test_what_the_record_does_not_tell_is_left_out(tmp_path):
    sweep = Simulation(tmp_path)
    sweep.record.job, sweep.record.started = {}, ""
    sweep.add([1.0] * 3, started=None, ended=None)
    data = gather(sweep.write())
    assert dict(usage_rows(data)) == {
        "time of all trials together": "2.0s",
        "environment steps": "200",
    }


LOG = {"rate": {"kind": "float", "lower": 1e-4, "upper": 1e-2, "log": True}}


def test_names_are_as_short_as_they_can_be_told_apart():
    assert short_names(["a.b.rate", "a.c.rate", "a.size", "size"]) == {
        "a.b.rate": "b.rate",
        "a.c.rate": "c.rate",
        "a.size": "a.size",
        "size": "size",
    }


def test_a_parameter_with_one_value_is_no_axis():
    axes = build_axes([{"same": 1, "other": 1}, {"same": 1, "other": 2}], {})
    assert [axis.name for axis in axes] == ["other"]


def test_numbers_are_placed_as_they_were_drawn():
    (axis,) = build_axes([{"rate": 1e-3}, {"rate": 2e-3}], LOG)
    assert (axis.is_log, axis.lower, axis.upper) == (True, 1e-4, 1e-2)
    assert axis.fraction(axis.place(1e-3)) == pytest.approx(0.5)


def test_values_that_a_scheduler_moved_out_of_bounds_widen_the_axis():
    (axis,) = build_axes([{"rate": 1e-3}, {"rate": 5e-2}], LOG)
    assert axis.upper == 5e-2


def test_integers_end_before_their_upper_bound():
    space = {"n": {"kind": "int", "lower": 1, "upper": 6, "log": False}}
    (axis,) = build_axes([{"n": 2}, {"n": 3}], space)
    assert (axis.lower, axis.upper) == (1, 5)


def test_choices_are_categories_numbers_by_size_others_as_written():
    space = {
        "size": {"kind": "choice", "choices": [128, 32, 64]},
        "kind": {"kind": "choice", "choices": ["linear", "exp", "unused"]},
    }
    trials = [{"size": 128, "kind": "exp"}, {"size": 32, "kind": "linear"}]
    size, kind = build_axes(trials, space)
    assert list(size.categories.values()) == ["32", "128"]
    assert list(kind.categories.values()) == ["linear", "exp"]
    assert kind.place("exp") == 1
    assert kind.place("unused") is None


def test_values_of_mixed_types_are_categories_that_look_different():
    (axis,) = build_axes([{"x": value} for value in (1, "1", True, None, [1, 2])], {})
    assert sorted(axis.categories.values()) == ["'1'", "1", "None", "True", "[1, 2]"]
    places = [axis.place(value) for value in (1, "1", True, None, [1, 2])]
    assert len(set(places)) == 5


def test_the_spread_is_the_same_each_time_and_within_a_category():
    (axis,) = build_axes([{"x": "a"}, {"x": "b"}], {})
    shifts = [spread(index) for index in range(100)]
    assert shifts == [spread(index) for index in range(100)]
    assert all(0 < axis.fraction(0, shift) < 0.5 for shift in shifts)
