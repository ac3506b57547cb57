"""What the events of a DIJob make of a seed."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

from ditk_ray.config.failure_kinds import FailureKind
from ditk_ray.kube.job_events import Finished, Gone, Message, Phase, Waiting
from ditk_ray.kube.marked_lines import (
    PodDiverged,
    PodEnd,
    PodError,
    PodEvaluation,
    PodMessage,
    PodResult,
)
from ditk_ray.trial.job_seed import START_SECONDS, JobSeed


@pytest.fixture
def seed(tmp_path: Path) -> JobSeed:
    return make_seed(tmp_path)


def make_seed(folder: Path, **more: Any) -> JobSeed:
    return JobSeed(0, "job", folder / "attempt_0/log.txt", folder / "result.pkl", **more)


def heard(message: PodMessage, uid: str = "one", pod: str = "job-serial-0") -> Message:
    return Message(message, pod, uid)


def evaluated(n: int, **more: Any) -> Message:
    return heard(PodEvaluation(n, {"eval_value": float(n), "env_step": n * 100}), **more)


def test_evaluations_are_numbered_as_they_come(seed):
    seed.take([Phase("Running"), evaluated(1), evaluated(2)])
    assert seed.evaluations == 2
    assert seed.at(1)["env_step"] == 100
    assert seed.at(2)["env_step"] == 200


def test_what_was_heard_already_is_not_heard_again(seed):
    seed.take([evaluated(1), evaluated(2)])
    seed.take([evaluated(1), evaluated(2), evaluated(3)])
    assert seed.evaluations == 3


def test_an_adopted_job_tells_again_what_was_reported(tmp_path):
    seed = make_seed(tmp_path, reported=2)
    seed.take([evaluated(1), evaluated(2)])
    assert seed.last["env_step"] == 200
    seed.take([evaluated(3)])
    assert seed.at(3)["env_step"] == 300


def test_an_adopted_job_whose_pod_was_replaced_meanwhile_is_lost(tmp_path):
    before = make_seed(tmp_path)
    before.take([evaluated(1)])
    seed = make_seed(tmp_path, reported=1, evaluators=before.evaluators)
    seed.take([evaluated(1, uid="another")])
    assert seed.failure is not None
    assert seed.failure.kind == FailureKind.LOST


def test_the_end_comes_by_the_log_with_the_result(seed):
    result = pickle.dumps({"eval_value": 7.0})
    seed.take([evaluated(1), heard(PodResult(2, result)), heard(PodEnd(3, {}))])
    assert seed.has_ended
    assert seed.failure is None
    assert seed.result_value() == {"eval_value": 7.0}


def test_a_result_on_a_shared_volume_is_enough(tmp_path):
    shared = tmp_path / "shared.pkl"
    shared.write_bytes(pickle.dumps({"eval_value": 5.0, "stop": True}))
    seed = make_seed(tmp_path, shared_result=shared)
    seed.take([Phase("Running"), Finished(True)])
    assert seed.has_ended
    assert seed.returned == {"eval_value": 5.0}
    assert seed.result_value() == {"eval_value": 5.0, "stop": True}


def test_where_log_and_volume_differ_the_log_counts_and_says_so(tmp_path):
    shared = tmp_path / "shared.pkl"
    shared.write_bytes(pickle.dumps({"eval_value": 5.0}))
    seed = make_seed(tmp_path, shared_result=shared)
    told = pickle.dumps({"eval_value": 7.0})
    seed.take([evaluated(1), heard(PodResult(2, told)), heard(PodEnd(3, {}))])
    assert seed.result_value() == {"eval_value": 7.0}
    assert "differs from the result in the log" in seed.log.read_text()


@pytest.mark.parametrize(
    ("events", "kind", "words"),
    [
        ([Gone()], FailureKind.LOST, "deleted by somebody else"),
        ([heard(PodError(1, "boom", FailureKind.BUG))], FailureKind.BUG, "boom"),
        ([Finished(False, FailureKind.OUT_OF_MEMORY, "137")], FailureKind.OUT_OF_MEMORY, "137"),
        ([Finished(True)], FailureKind.BUG, "has to run the script"),
        ([Finished(True, None, "no log")], FailureKind.LOST, "no log"),
        ([evaluated(1), Phase("Rescheduling")], FailureKind.LOST, "taken away"),
        ([evaluated(1), Phase("Restarting")], FailureKind.LOST, "taken away"),
        ([evaluated(1), evaluated(1, uid="two")], FailureKind.LOST, "taken away"),
        ([heard(PodEnd(1, {})), Finished(True)], FailureKind.BUG, "without a single evaluation"),
    ],
)
def test_what_goes_wrong_has_a_kind(events, kind, words, seed):
    seed.take(events)
    assert seed.failure is not None
    assert seed.failure.kind == kind
    assert words in str(seed.failure)


def test_a_job_that_cannot_be_watched_any_more_is_lost(seed):
    seed.take([evaluated(1)])
    seed.lose("the API server does not answer")
    assert seed.failure is not None
    assert seed.failure.kind == FailureKind.LOST


def test_a_pod_that_is_replaced_before_it_said_anything_is_waited_for(seed):
    seed.take([Phase("Rescheduling"), Phase("Running"), evaluated(1)])
    assert seed.failure is None


def test_a_job_of_several_tasks_ends_with_the_pod_that_evaluates(seed):
    collector = {"uid": "two", "pod": "job-collector-0"}
    seed.take([heard(PodEnd(1, {}), **collector), evaluated(1)])
    assert not seed.has_ended and seed.failure is None
    seed.take([heard(PodEnd(2, {}), uid="three", pod="job-collector-1"), evaluated(2)])
    assert not seed.has_ended and seed.evaluations == 2
    seed.take([heard(PodEnd(3, {}))])
    assert seed.has_ended and seed.failure is None


def test_of_several_pods_that_evaluate_the_first_counts(seed):
    other = {"uid": "two", "pod": "job-evaluator-1"}
    seed.take([evaluated(1), evaluated(1, **other), evaluated(2, **other), evaluated(2)])
    assert seed.evaluations == 2
    assert seed.at(2)["env_step"] == 200


def test_what_a_training_returned_without_an_evaluation_counts_when_its_job_is_over(seed):
    seed.take([heard(PodEnd(1, {"eval_value": 3.0}))])
    assert not seed.has_ended
    seed.take([Finished(True)])
    assert seed.has_ended and seed.returned == {"eval_value": 3.0}


def test_a_policy_that_diverged_is_no_failure(seed):
    seed.take([heard(PodDiverged(1, "nan")), Finished(False, FailureKind.BUG, "1")])
    assert seed.has_diverged
    assert seed.failure is None


def test_nothing_goes_wrong_any_more_after_the_end(seed):
    seed.take([evaluated(1), heard(PodEnd(2, {})), Gone()])
    assert seed.failure is None


def test_a_job_has_to_start_even_if_nobody_gave_it_a_time(seed):
    left = seed.seconds_to_stall(None, None)
    assert left is not None
    assert START_SECONDS - 5 < left <= START_SECONDS
    seed.take([Waiting("pod job-serial-0 is not scheduled"), Phase("Running")])
    assert seed.seconds_to_stall(None, None) is None


def test_a_job_that_does_not_start_says_what_its_pods_wait_for(seed):
    seed.take([Waiting("pod job-serial-0 is not scheduled")])
    seed.note_stall(3.0, None)
    assert seed.failure is not None
    assert seed.failure.kind == FailureKind.NOT_STARTED
    assert "did not start within 3.0s: pod job-serial-0 is not scheduled" in str(seed.failure)
