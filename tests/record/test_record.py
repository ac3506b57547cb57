"""The record of a sweep, and the file it is kept in."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ditk_ray.config.terms import Objective
from ditk_ray.errors import BadConfigError
from ditk_ray.record.record import (
    RECORD_FILE,
    SweepRecord,
    SweepStatus,
    TrialRecord,
    TrialState,
    read_record,
    write_record,
)


def sweep(mode: str = "max", **reports: list[Any]) -> SweepRecord:
    """Return a sweep with a trial for each name, and its reports as (value, env_step)."""
    record = SweepRecord("my_sweep", "eval_value", mode)
    for name, pairs in reports.items():
        trial = record.trials[name] = TrialRecord(name, {"lr": 0.1})
        for value, step in pairs:
            record.add_report(trial, {"eval_value": value, "env_step": step})
    return record


def written(record: SweepRecord, folder: Path) -> dict[str, Any]:
    write_record(record, folder)
    return json.loads((folder / RECORD_FILE).read_text(), parse_constant=not_json)


def not_json(name: str) -> None:
    raise AssertionError(f"{name} is not JSON")


@pytest.mark.parametrize(("mode", "best"), [("max", "b"), ("min", "c")])
def test_the_best_trial_is_chosen_by_the_mode(mode, best):
    record = sweep(mode, a=[(5, 1)], b=[(9, 1)], c=[(1, 1)])

    assert record.best().id == best


def test_a_trial_counts_by_its_best_evaluation_not_its_last():
    record = sweep(a=[(5, 1), (100, 2), (3, 3)], b=[(50, 1)])
    trial = record.trials["a"]

    assert record.best() is trial
    assert record.score(trial) == 100
    assert trial.best_metrics == {"eval_value": 100, "env_step": 2}
    assert trial.metrics == {"eval_value": 3, "env_step": 3}
    assert trial.reports == 3


def test_of_equal_trials_the_one_with_fewest_steps_is_best():
    assert sweep(a=[(200, 3000)], b=[(200, 1000)], c=[(200, 2000)]).best().id == "b"


def test_of_equal_evaluations_the_first_is_kept():
    record = sweep(a=[(200, 100), (200, 300)])

    assert record.trials["a"].best_metrics["env_step"] == 100


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, None, "high"])
@pytest.mark.parametrize("mode", ["max", "min"])
def test_a_value_that_is_no_number_is_never_best(value, mode):
    record = sweep(mode, a=[(value, 1), (-5, 2), (value, 3)], b=[(value, 1)])

    assert record.best().id == "a"
    assert record.score(record.trials["a"]) == -5
    assert record.score(record.trials["b"]) is None


def test_a_sweep_without_a_score_has_no_best_trial():
    assert SweepRecord("s", "eval_value", "max").best() is None
    assert sweep(a=[(math.nan, 1)], b=[]).best() is None


def test_trials_without_a_step_can_be_compared():
    record = sweep(a=[(5, None)], b=[(5, 10)])

    assert record.best() is not None


@pytest.mark.parametrize("kind", [np.float32, np.float64, np.int64])
def test_a_score_may_be_a_number_of_numpy(kind):
    record = sweep(a=[(kind(5), 1)], b=[(kind(7), 1)])

    assert record.best().id == "b"


def test_trials_are_counted_by_state():
    record = sweep(a=[], b=[], c=[])
    record.trials["a"].state = TrialState.FAILED
    record.trials["b"].state = record.trials["c"].state = TrialState.SUCCEEDED

    assert record.counts() == {TrialState.SUCCEEDED: 2, TrialState.FAILED: 1}


@pytest.mark.parametrize(
    ("state", "final"),
    [
        (TrialState.PENDING, False),
        (TrialState.RUNNING, False),
        (TrialState.PAUSED, False),
        (TrialState.SUCCEEDED, True),
        (TrialState.STOPPED, True),
        (TrialState.PRUNED, True),
        (TrialState.FAILED, True),
    ],
)
def test_a_final_state_is_one_that_nothing_follows(state, final):
    assert state.is_final is final


def test_the_file_holds_what_other_tools_read(tmp_path):
    record = sweep(a=[(5, 10)], b=[(9, 20), (7, 30)])
    record.status, record.started, record.ended = SweepStatus.FINISHED, "2024-01-01", "2024-01-02"
    record.trials["a"].state = TrialState.FAILED
    record.trials["a"].error = "it broke"
    record.trials["b"].state = TrialState.SUCCEEDED

    held = written(record, tmp_path)

    trials = held.pop("trials")
    best = held.pop("best")
    assert held == {
        "version": 1,
        "name": "my_sweep",
        "status": "finished",
        "why": None,
        "metric": "eval_value",
        "mode": "max",
        "objectives": [{"metric": "eval_value", "mode": "max"}],
        "started": "2024-01-01",
        "ended": "2024-01-02",
        "worked_seconds": 0.0,
        "counts": {"failed": 1, "succeeded": 1},
        "job": {},
    }
    assert [trial["id"] for trial in trials] == ["a", "b"]
    assert trials[0]["error"] == "it broke"
    assert trials[1] == {
        "id": "b",
        "params": {"lr": 0.1},
        "state": "succeeded",
        "metrics": {"eval_value": 7, "env_step": 30},
        "best_metrics": {"eval_value": 9, "env_step": 20},
        "dir": "",
        "error": None,
        "why": None,
        "result": None,
        "reports": 2,
        "attempt": 0,
        "node": None,
        "started": None,
        "ended": None,
        "changes": [],
        "failures": [],
        "priority": 0,
        "is_held": False,
    }
    assert best == {**trials[1], "score": 9}


def test_a_sweep_without_trials_is_written_too(tmp_path):
    held = written(SweepRecord("s", "eval_value", "max"), tmp_path)

    assert (held["trials"], held["best"], held["counts"]) == ([], None, {})


def test_nan_and_infinity_are_written_as_null(tmp_path):
    record = sweep(a=[(math.nan, 1)])
    record.trials["a"].params = {"deep": [{"x": math.inf}, (-math.inf, np.float64("nan"))]}

    (trial,) = written(record, tmp_path)["trials"]

    assert trial["metrics"]["eval_value"] is None
    assert trial["params"] == {"deep": [{"x": None}, [None, None]]}


@pytest.mark.parametrize(
    ("value", "held"),
    [
        (np.int64(64), 64),
        (np.float32(0.5), 0.5),
        (np.bool_(True), True),
        (np.array([1, 2]), [1, 2]),
        (np.float32("nan"), None),
        (Path("a/b"), "a/b"),
        ((1, 2), [1, 2]),
    ],
)
def test_a_parameter_of_any_kind_can_be_written(tmp_path, value, held):
    record = sweep(a=[])
    record.trials["a"].params = {"x": value}

    assert written(record, tmp_path)["trials"][0]["params"] == {"x": held}


def test_bytes_are_written_as_text(tmp_path):
    record = sweep(a=[])
    record.trials["a"].result = b"abc"

    assert isinstance(written(record, tmp_path)["trials"][0]["result"], str)


class Unwritable:
    def __str__(self) -> str:
        raise RuntimeError("cannot be written")


def test_the_old_file_stays_whole_if_the_new_one_cannot_be_written(tmp_path):
    record = sweep(a=[(1, 1)])
    write_record(record, tmp_path)
    before = (tmp_path / RECORD_FILE).read_text()
    record.trials["a"].params = {"x": Unwritable()}

    with pytest.raises(RuntimeError):
        write_record(record, tmp_path)

    assert (tmp_path / RECORD_FILE).read_text() == before
    assert [path.name for path in tmp_path.iterdir()] == [RECORD_FILE]


def test_a_file_that_was_left_half_written_is_in_nobodys_way(tmp_path):
    left = tmp_path / f".{RECORD_FILE}.0a1b.new"
    left.write_text('{"half": ')

    assert written(sweep(a=[(1, 1)]), tmp_path)["best"]["id"] == "a"
    assert {path.name for path in tmp_path.iterdir()} == {RECORD_FILE, left.name}


def test_a_record_that_was_written_is_read_again(tmp_path):
    record = sweep(a=[(5, 10)], b=[(9, 20)])
    record.status, record.job = SweepStatus.FINISHED, {"name": "Job"}
    record.trials["a"].state = TrialState.FAILED
    record.trials["b"].set_params({"lr": 0.2})
    write_record(record, tmp_path)

    read = read_record(tmp_path)

    assert read.status is SweepStatus.FINISHED
    assert read.trials["a"].state is TrialState.FAILED
    assert read.best().id == "b"
    assert [trial.dir for trial in read.trials.values()] == [f"{tmp_path}/a", f"{tmp_path}/b"]
    write_record(read, tmp_path)
    assert read_record(tmp_path) == read


def test_several_objectives_and_their_pareto_set_are_written_and_read_again(tmp_path):
    record = sweep(a=[(5, 10)], b=[(9, 20)], c=[(8, 30)])
    record.more_objectives = (Objective("env_step", "min"),)
    record.why = "sweep.trials>=3"

    held = written(record, tmp_path)

    assert held["objectives"] == [
        {"metric": "eval_value", "mode": "max"},
        {"metric": "env_step", "mode": "min"},
    ]
    assert held["pareto"] == ["b", "a"]
    assert held["best"]["id"] == "b"
    read = read_record(tmp_path)
    assert read.objectives == record.objectives
    assert read.why == "sweep.trials>=3"


def test_a_record_from_before_several_objectives_has_one(tmp_path):
    data = sweep(a=[(5, 10)]).as_dict()
    del data["objectives"], data["why"]
    (tmp_path / RECORD_FILE).write_text(json.dumps(data))

    assert read_record(tmp_path).objectives == (Objective("eval_value", "max"),)
    assert read_record(tmp_path).pareto_set() == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "no such file"),
        ("", "cannot be read"),
        ('{"version": 1, "name"', "cannot be read"),
        ('{"version": 1}', "cannot be read"),
        ("[]", "cannot be read"),
        ('{"version": 99}', "update ditk_ray"),
    ],
)
def test_what_is_no_record_is_refused_with_its_place(tmp_path, text, said):
    if text is not None:
        (tmp_path / RECORD_FILE).write_text(text)

    with pytest.raises(BadConfigError, match=said) as error:
        read_record(tmp_path)

    assert str(tmp_path) in str(error.value)


def test_fields_of_a_later_version_are_passed_over(tmp_path):
    data = sweep(a=[(5, 10)]).as_dict()
    data["trials"] = [{**trial, "mood": "good"} for trial in data["trials"]]
    (tmp_path / RECORD_FILE).write_text(json.dumps(data))

    assert read_record(tmp_path).trials["a"].metrics == {"eval_value": 5, "env_step": 10}


def test_parameters_that_a_scheduler_changes_have_a_history():
    trial = sweep(a=[(5, 10)]).trials["a"]

    assert not trial.set_params({"lr": 0.1})
    assert trial.changes == []
    assert trial.set_params({"lr": 0.2})
    assert trial.params == {"lr": 0.2}
    assert trial.changes == [
        {"env_step": 0, "params": {"lr": 0.1}},
        {"env_step": 10, "params": {"lr": 0.2}},
    ]
