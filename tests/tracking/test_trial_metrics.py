"""Reading what a trial reported, over all of its attempts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ditk_ray.tracking.trial_metrics import by_attempt, line_of_progress, read_metrics


def write(folder: Path, *rows: dict[str, Any], rest: str = "") -> Path:
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows) + rest)
    return folder


def rows(attempt: int, *steps: int | None) -> list[dict[str, Any]]:
    return [{"env_step": step, "eval_value": 1.0, "ditk_ray_attempt": attempt} for step in steps]


def steps(found: list[dict[str, Any]]) -> list[tuple[int, Any]]:
    return [(row["ditk_ray_attempt"], row["env_step"]) for row in found]


def test_all_evaluations_of_all_attempts_are_read_in_their_order(tmp_path):
    written = [*rows(0, 0, 100), *rows(1, 50, 150)]

    assert read_metrics(write(tmp_path, *written)) == written


@pytest.mark.parametrize("why", ["training", "time"])
def test_the_line_that_ends_a_trial_is_read_only_if_it_says_more(tmp_path, why):
    (row,) = rows(0, 100)
    last = {**row, "ditk_ray_ended": why, "ditk_ray_result": {"a": 1}}
    assert read_metrics(write(tmp_path, row, last)) == [row]
    assert read_metrics(write(tmp_path, row, {**last, "own": 2.0})) == [row, {**last, "own": 2.0}]


def test_the_evaluation_that_ends_a_trial_by_itself_is_read(tmp_path):
    (row,) = rows(0, 100)
    nan = {**row, "env_step": 200, "eval_value": None, "ditk_ray_ended": "nan"}
    assert read_metrics(write(tmp_path, row, nan)) == [row, nan]


def test_a_line_that_says_only_how_a_trial_ended_is_no_evaluation(tmp_path):
    ended = {"ditk_ray_ended": "failed", "ditk_ray_attempt": 0}
    assert read_metrics(write(tmp_path, *rows(0, 1), ended)) == rows(0, 1)


def test_a_file_that_is_being_written_or_broken_is_read_as_far_as_it_goes(tmp_path):
    write(tmp_path, *rows(0, 5), rest='[1]\nnonsense\n{"eval_va')
    assert read_metrics(tmp_path) == rows(0, 5)
    assert read_metrics(tmp_path / "missing") == []


def test_attempts_are_told_apart_by_their_number():
    assert [steps(own) for own in by_attempt([*rows(0, 0, 9), *rows(2, 5)])] == [
        [(0, 0), (0, 9)],
        [(2, 5)],
    ]
    assert len(by_attempt([{"env_step": 1}, {"env_step": 0}])) == 1
    assert by_attempt([]) == []


def test_what_an_attempt_did_beyond_the_beginning_of_the_next_is_superseded():
    every = [*rows(0, 0, 100, 200, 300), *rows(1, 200, 250), *rows(2, 250, 400)]
    assert steps(line_of_progress(every)) == [(0, 0), (0, 100), (1, 200), (2, 250), (2, 400)]


def test_an_attempt_that_begins_anew_supersedes_all_before():
    assert steps(line_of_progress([*rows(0, 0, 100), *rows(1, 0, 50)])) == [(1, 0), (1, 50)]
    assert steps(line_of_progress([*rows(0, 0, 100), *rows(1, None)])) == [(1, None)]


def test_a_single_attempt_is_its_own_line_of_progress():
    every = rows(0, 0, 0, 0)  # offline training has no environment steps
    assert line_of_progress(every) == every
    assert line_of_progress([]) == []
