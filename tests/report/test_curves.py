from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

from ditk_ray.report.curves import read_curve, thinned


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


def attempt(number: int, *evaluations: tuple[int, float]) -> list[dict[str, Any]]:
    """Return the lines of an attempt that was at these steps at these seconds."""
    return [
        {"eval_value": 1.0, "env_step": step, "time": seconds, "ditk_ray_attempt": number}
        for step, seconds in evaluations
    ]


def test_another_attempt_begins_after_a_gap(tmp_path):
    write(tmp_path, *attempt(0, (0, 1.0), (100, 9.0)), *attempt(1, (50, 5.0)))
    curve = read_curve(tmp_path, "eval_value")
    assert curve.steps == [0, 100, None, 50]
    assert curve.scores == [1.0, 1.0, None, 1.0]
    assert curve.attempts == 2


def test_time_is_added_up_over_attempts_whether_their_clock_goes_on_or_not(tmp_path):
    first = attempt(0, (0, 1.0), (50, 5.0), (100, 9.0))
    write(tmp_path, *first, *attempt(1, (60, 6.0), (100, 10.0)))
    assert read_curve(tmp_path, "eval_value").seconds == 9.0 + 5.0
    write(tmp_path, *first, *attempt(1, (60, 0.5), (100, 4.0)))
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
