"""What a seed makes of the events of its run, wherever that is."""

from __future__ import annotations

from pathlib import Path

import pytest

from ditk_ray.config.config_file import EntryCall
from ditk_ray.config.engine_config import EngineConfig
from ditk_ray.config.terms import FailureKind
from ditk_ray.execution.executor import Ended, Evaluated, Run, Started, Waiting
from ditk_ray.trial.plan import SeedTask
from ditk_ray.trial.seed import START_SECONDS, Seed


class Somewhere(Run):
    def __str__(self) -> str:
        return "the run"

    def stop(self) -> bool:
        return True


def make_seed(folder: Path, reported: int = 0) -> Seed:
    task = SeedTask(EngineConfig({}, {}), EntryCall("serial", {}), folder / "attempt_0")
    seed = Seed(task, folder / "result.pkl", reported=reported)
    seed.follow(Somewhere())
    return seed


@pytest.fixture
def seed(tmp_path: Path) -> Seed:
    return make_seed(tmp_path)


def evaluated(number: int) -> Evaluated:
    return Evaluated(number, {"env_step": 100 * number})


def test_evaluations_are_kept_until_all_seeds_have_theirs(seed):
    for number in (1, 2):
        seed.take(evaluated(number))
    assert seed.evaluations == 2
    assert [seed.at(number)["env_step"] for number in (1, 2)] == [100, 200]


def test_an_adopted_run_tells_again_what_was_reported(tmp_path):
    seed = make_seed(tmp_path, reported=2)
    seed.take(evaluated(1))
    seed.take(evaluated(2))
    assert seed.last["env_step"] == 200
    seed.take(evaluated(3))
    assert seed.at(3)["env_step"] == 300


def test_a_training_without_a_single_evaluation_has_failed(seed):
    seed.take(Ended())
    assert seed.failure is not None
    assert "without a single evaluation" in str(seed.failure)


def test_a_policy_that_diverged_is_no_failure(seed):
    seed.take(Ended("diverged"))
    assert seed.has_diverged
    assert seed.failure is None


def test_a_failure_has_its_kind_and_its_log(seed):
    seed.take(Ended("failed", error="boom", failure=FailureKind.LOST))
    assert seed.failure is not None
    assert (seed.failure.kind, seed.failure.log) == (FailureKind.LOST, str(seed.task.log))


def test_a_run_has_to_start_even_if_nobody_gave_it_a_time(seed):
    left = seed.seconds_to_stall(None, None)
    assert left is not None
    assert START_SECONDS - 5 < left <= START_SECONDS
    seed.take(Started())
    assert seed.seconds_to_stall(None, None) is None


def test_a_run_that_does_not_start_says_what_it_waits_for(seed):
    seed.take(Waiting("pod job-serial-0 is not scheduled"))
    seed.note_stall(3.0, None)
    assert seed.failure is not None
    assert seed.failure.kind == FailureKind.NOT_STARTED
    assert "did not start within 3.0s: pod job-serial-0 is not scheduled" in str(seed.failure)


def test_a_seed_whose_turn_it_is_not_may_be_silent(seed):
    seed.take(Started())
    assert seed.seconds_to_stall(None, 5.0) is not None
    seed.wait_turn()
    assert seed.seconds_to_stall(None, 5.0) is None
