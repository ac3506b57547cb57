"""A sweep as another process sees it."""

from __future__ import annotations

import os

import pytest

from ditk_ray.tracking import seen_sweep
from ditk_ray.tracking.lock import sweep_lock
from ditk_ray.tracking.record import SweepStatus, TrialState
from ditk_ray.tracking.seen_sweep import look_at
from tests.tracking.written_sweep import WrittenSweep


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
