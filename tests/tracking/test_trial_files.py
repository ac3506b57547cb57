"""The files that a trial's attempts leave."""

from __future__ import annotations

import pytest

from ditk_ray.tracking.trial_files import attempt_logs, attempts, event_folders, seed_folders
from tests.tracking.written_sweep import WrittenSweep


@pytest.fixture
def sweep(tmp_path):
    made = WrittenSweep(tmp_path / "mine")
    made.trial(0)
    return made


def events(folder):
    folder.mkdir(parents=True)
    (folder / "events.out.tfevents.1.host").touch()
    return folder


def test_attempts_are_ordered_by_number_not_by_name(sweep):
    for number in (10, 9, 0):
        sweep.log(0, "x", attempt=number)
    (sweep.folder / "trial_00000/attempt_x").mkdir()
    assert list(attempts(sweep.folder / "trial_00000")) == [0, 9, 10]


def test_a_trial_that_has_not_started_has_no_attempts(sweep):
    assert attempts(sweep.folder / "trial_00000") == {}
    assert attempts(sweep.folder / "trial_00001") == {}


def test_a_single_seed_has_no_name(sweep):
    log = sweep.log(0, "x")
    assert attempt_logs(log.parent) == {"": log}


def test_several_seeds_are_named_in_their_order(sweep):
    logs = {seed: sweep.log(0, "x", seed=seed) for seed in ("seed_10", "seed_2")}
    attempt = logs["seed_2"].parents[1]
    assert list(attempt_logs(attempt)) == ["seed_2", "seed_10"]
    assert attempt_logs(attempt) == logs


def test_an_experiment_that_is_named_like_a_seed_is_none(sweep):
    log = sweep.log(0, "x")
    (log.parent / "seed_5").mkdir()
    assert seed_folders(log.parent) == {"": log.parent}


def test_event_files_are_found_where_di_engine_writes_them(sweep):
    attempt = sweep.log(0, "x").parent
    place = events(attempt / "cartpole_dqn/log/serial")
    assert event_folders(attempt) == {"": place}


def test_event_files_of_several_seeds_are_told_apart(sweep):
    attempt = sweep.log(0, "x", seed="seed_0").parents[1]
    places = {f"seed_{seed}": events(attempt / f"seed_{seed}/exp/log/serial") for seed in (0, 1)}
    assert event_folders(attempt) == places


def test_several_folders_of_event_files_keep_their_paths(sweep):
    attempt = sweep.log(0, "x").parent
    for place in ("exp/log/serial", "exp/extra"):
        events(attempt / place)
    assert set(event_folders(attempt)) == {"exp/log/serial", "exp/extra"}
