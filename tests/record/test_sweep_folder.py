"""Finding sweeps and trials by what a person types."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ditk_ray.errors import BadConfigError
from ditk_ray.record import sweep_folder as seen_sweep
from ditk_ray.record.record import SweepRecord, SweepStatus, TrialRecord, TrialState
from ditk_ray.record.sweep_folder import find_sweep, find_trial, list_sweeps, look_at
from ditk_ray.util.locks import sweep_lock
from tests.record.written_sweep import WrittenSweep


@pytest.fixture
def storage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for age, name in enumerate(["newest", "walker_ppo", "oldest"]):
        WrittenSweep(tmp_path / "results" / name).write().written_at(1_000_000 - age)
    return Path("results")


def test_a_sweep_is_found_by_its_name(storage):
    assert find_sweep("walker_ppo", storage) == (storage / "walker_ppo").resolve()


@pytest.mark.parametrize(
    "given", ["results/oldest", "results/oldest/", "results/oldest/sweep.json", "./results/oldest"]
)
def test_a_sweep_is_found_by_its_folder_wherever_the_others_are(storage, given):
    assert find_sweep(given, Path("elsewhere")) == (storage / "oldest").resolve()


def test_a_sweep_is_found_from_inside_its_own_folder(storage, monkeypatch):
    folder = (storage / "oldest").resolve()
    monkeypatch.chdir(folder)
    assert find_sweep(".", storage) == folder


def test_a_name_wins_over_a_folder_that_is_no_sweep(storage):
    Path("oldest").mkdir()
    assert find_sweep("oldest", storage) == (storage / "oldest").resolve()


def test_a_link_leads_to_the_folder_where_the_sweep_really_is(storage):
    Path("mine").symlink_to(storage / "oldest")
    assert find_sweep("mine", storage) == (storage / "oldest").resolve()


def test_a_typo_suggests_the_sweep_that_was_meant(storage):
    with pytest.raises(BadConfigError, match=r"no such sweep.*\n.*did you mean 'walker_ppo'\?"):
        find_sweep("walker_pop", storage)


def test_an_unknown_name_lists_the_newest_sweeps(storage):
    with pytest.raises(BadConfigError, match="newest, walker_ppo, oldest"):
        find_sweep("zzz", storage)


def test_of_many_sweeps_only_a_few_are_listed(storage):
    for number in range(9):
        WrittenSweep(storage / f"sweep_{number}").write()
    with pytest.raises(BadConfigError, match=r"sweep_\d, \.\.\. \(12 in all\)"):
        find_sweep("zzz", storage)


def test_a_folder_without_a_record_is_said_to_be_no_sweep(storage):
    (storage / "empty").mkdir()
    with pytest.raises(BadConfigError, match=r"results/empty has no sweep\.json"):
        find_sweep("empty", storage)


@pytest.mark.parametrize("exists", [True, False])
def test_where_there_is_no_sweep_the_storage_path_is_asked_for(tmp_path, exists):
    storage = tmp_path / "none"
    if exists:
        storage.mkdir()
    said = "holds no sweep" if exists else "does not exist"
    with pytest.raises(BadConfigError, match=f"{said}; give --storage_path"):
        find_sweep("mine", storage)


def test_an_empty_name_is_no_sweep(storage):
    with pytest.raises(BadConfigError, match="no such sweep"):
        find_sweep("", storage)


def test_sweeps_are_listed_newest_first_and_nothing_else_is(storage):
    (storage / "mlflow_artifacts").mkdir()
    (storage / "mlflow.db").touch()
    assert [folder.name for folder in list_sweeps(storage)] == ["newest", "walker_ppo", "oldest"]


def test_a_storage_path_that_does_not_exist_holds_no_sweep(tmp_path):
    assert list_sweeps(tmp_path / "none") == []


def record(*trials: str) -> SweepRecord:
    found = SweepRecord("mine", "eval_value", "max")
    found.trials = {name: TrialRecord(name, {}) for name in trials}
    return found


NUMBERED = record(*(f"trial_{number:05d}" for number in range(21)))


@pytest.mark.parametrize("given", ["trial_00002", "2", "00002", "02", "trial_2"])
def test_a_trial_is_found_by_its_id_or_its_number(given):
    assert find_trial(NUMBERED, given).id == "trial_00002"


def test_the_best_trial_is_found_as_such():
    found = record("trial_00000", "trial_00001")
    for trial, score in zip(found.trials.values(), (1.0, 5.0), strict=True):
        found.add_report(trial, {"eval_value": score})
    assert find_trial(found, "best").id == "trial_00001"


def test_without_a_score_there_is_no_best_trial():
    with pytest.raises(BadConfigError, match="no trial of mine has a score"):
        find_trial(record("trial_00000"), "best")


@pytest.mark.parametrize("given", ["21", "trial_00021"])
def test_an_unknown_number_lists_trials_that_are_there(given):
    with pytest.raises(BadConfigError, match=r"mine has no such trial\n.*trial_000"):
        find_trial(NUMBERED, given)


def test_a_typo_suggests_the_trial_that_was_meant():
    with pytest.raises(BadConfigError, match="did you mean 'trial_00010'"):
        find_trial(NUMBERED, "tral_00010")


@pytest.mark.parametrize("given", ["", "trial_", "x"])
def test_what_is_no_trial_is_refused(given):
    with pytest.raises(BadConfigError, match="no such trial"):
        find_trial(NUMBERED, given)


def test_a_sweep_without_trials_says_so():
    with pytest.raises(BadConfigError, match="no trial has been made yet"):
        find_trial(record(), "0")


@pytest.fixture
def sweep(tmp_path):
    made = WrittenSweep(tmp_path / "mine")
    made.trial(0, TrialState.SUCCEEDED, [(5.0, 10)])
    made.trial(1, TrialState.RUNNING)
    return made


def test_a_sweep_whose_process_lives_is_running(sweep):
    sweep.write(SweepStatus.RUNNING)
    with sweep_lock(sweep.folder):
        seen = look_at(sweep.folder)
    assert (seen.status, seen.is_alive, seen.is_running) == ("running", True, True)
    assert (seen.done, seen.total) == (1, 3)


def test_a_sweep_that_says_it_runs_but_has_no_process_is_dead(sweep):
    sweep.write(SweepStatus.RUNNING)
    seen = look_at(sweep.folder)
    assert (seen.status, seen.is_alive) == ("dead", False)


@pytest.mark.parametrize("status", ["finished", "failed", "interrupted"])
def test_a_sweep_that_has_ended_is_what_its_record_says(sweep, status):
    sweep.write(SweepStatus(status))
    seen = look_at(sweep.folder)
    assert (seen.status, seen.is_alive) == (status, False)
    assert seen.seconds == 90


def test_a_sweep_that_still_records_its_end_is_alive_and_finished(sweep):
    sweep.write()
    with sweep_lock(sweep.folder):
        seen = look_at(sweep.folder)
    assert (seen.status, seen.is_alive, seen.is_running) == ("finished", True, False)


def test_a_sweep_that_ends_while_it_is_looked_at_is_not_taken_for_dead(sweep, monkeypatch):
    sweep.write(SweepStatus.RUNNING)

    def ends_now(folder):
        sweep.write(SweepStatus.FINISHED)
        return False

    monkeypatch.setattr(seen_sweep, "is_running", ends_now)
    assert look_at(sweep.folder).status == "finished"


def test_a_lock_that_may_not_be_touched_leaves_the_record_to_be_believed(sweep, monkeypatch):
    sweep.write(SweepStatus.RUNNING)

    def refuse(folder):
        raise PermissionError

    monkeypatch.setattr(seen_sweep, "is_running", refuse)
    assert look_at(sweep.folder).status == "running"


def test_a_dead_sweep_ran_until_it_was_last_heard_of(sweep):
    sweep.write(SweepStatus.RUNNING)
    begun = 1767348000  # 2026-01-02T10:00:00+00:00, the record's own
    os.utime(sweep.folder / "sweep.json", (begun + 45, begun + 45))
    assert look_at(sweep.folder).seconds == 45


def test_a_record_without_a_time_has_no_duration(sweep):
    sweep.record.started = ""
    sweep.write()
    assert look_at(sweep.folder).seconds is None


def test_the_trials_of_a_grid_are_counted(tmp_path):
    grid = {"kind": "grid", "choices": [1, 2, 3, 4]}
    space = {"a": grid, "b": {"kind": "choice", "choices": [1, 2]}, "c": grid}
    made = WrittenSweep(tmp_path / "grid", num_samples=2, space=space).write()
    assert look_at(made.folder).total == 32


def test_a_record_without_a_job_counts_the_trials_it_has(sweep):
    sweep.record.job = {}
    sweep.write()
    assert look_at(sweep.folder).total == 2
