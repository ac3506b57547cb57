"""What the events of a DIJob make of its run."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

from ditk_ray.config.terms import FailureKind
from ditk_ray.dijob.job_run import JobRun
from ditk_ray.dijob.tracker import Message, Phase, Said
from ditk_ray.execution.executor import Ended, Evaluated, Event, Started, Waiting
from ditk_ray.trial.result import read_result


@pytest.fixture
def run(tmp_path: Path) -> JobRun:
    return make_run(tmp_path)


def make_run(folder: Path, **more: Any) -> JobRun:
    return JobRun("job", folder / "attempt_0/log.txt", lambda job, ended: True, **more)


def steps(events: list[Event]) -> list[int]:
    return [event.metrics["env_step"] for event in events if isinstance(event, Evaluated)]


def heard(n: int, said: Said, uid: str = "one", pod: str = "job-serial-0") -> Message:
    return Message(n, said, pod, uid)


def failed(error: str, failure: FailureKind = FailureKind.BUG) -> Ended:
    return Ended("failed", error=error, failure=failure)


def evaluated(n: int, **more: Any) -> Message:
    return heard(n, Evaluated(n, {"eval_value": float(n), "env_step": n * 100}), **more)


def test_evaluations_are_numbered_as_they_come(run):
    events = run.take([Phase("Running"), evaluated(1), evaluated(2)])
    assert Started() in events
    assert [event.number for event in events if isinstance(event, Evaluated)] == [1, 2]
    assert steps(events) == [100, 200]


def test_what_was_heard_already_is_not_heard_again(run):
    run.take([evaluated(1), evaluated(2)])
    assert steps(run.take([evaluated(1), evaluated(2), evaluated(3)])) == [300]


def test_an_adopted_job_whose_pod_was_replaced_meanwhile_is_lost(tmp_path):
    before = make_run(tmp_path)
    before.take([evaluated(1)])
    run = make_run(tmp_path, evaluators=before.handle["pods"])
    run.take([evaluated(1, uid="another")])
    assert run.ended is not None
    assert run.ended.failure == FailureKind.LOST


def test_the_end_comes_by_the_log_with_the_result(run):
    result = pickle.dumps({"eval_value": 7.0})
    *_, end = run.take([evaluated(1), heard(2, result), heard(3, Ended())])
    assert end.kind == "finished"
    assert read_result(end.result) == {"eval_value": 7.0}


def test_a_result_on_a_shared_volume_is_enough(tmp_path):
    shared = tmp_path / "shared.pkl"
    shared.write_bytes(pickle.dumps({"eval_value": 5.0, "stop": True}))
    run = make_run(tmp_path, shared_result=shared)
    *_, end = run.take([Phase("Running"), Ended()])
    assert end == Ended(returned={"eval_value": 5.0}, result=shared)


def test_where_log_and_volume_differ_the_log_counts_and_says_so(tmp_path):
    shared = tmp_path / "shared.pkl"
    shared.write_bytes(pickle.dumps({"eval_value": 5.0}))
    run = make_run(tmp_path, shared_result=shared)
    told = pickle.dumps({"eval_value": 7.0})
    *_, end = run.take([evaluated(1), heard(2, told), heard(3, Ended())])
    assert read_result(end.result) == {"eval_value": 7.0}
    assert "differs from the result in the log" in run.log.read_text()


@pytest.mark.parametrize(
    ("events", "kind", "words"),
    [
        ([failed("deleted", FailureKind.LOST)], FailureKind.LOST, "deleted"),
        ([heard(1, failed("boom"))], FailureKind.BUG, "boom"),
        ([failed("137", FailureKind.OUT_OF_MEMORY)], FailureKind.OUT_OF_MEMORY, "137"),
        ([Ended()], FailureKind.BUG, "does its container run the generated script"),
        ([Ended(error="no log")], FailureKind.LOST, "no log"),
        ([evaluated(1), Phase("Rescheduling")], FailureKind.LOST, "taken away"),
        ([evaluated(1), Phase("Restarting")], FailureKind.LOST, "taken away"),
        ([evaluated(1), evaluated(1, uid="two")], FailureKind.LOST, "taken away"),
    ],
)
def test_what_goes_wrong_has_a_kind(events, kind, words, run):
    *_, end = run.take(events)
    assert (end.kind, end.failure) == ("failed", kind)
    assert words in end.error


def test_a_job_that_cannot_be_watched_any_more_is_lost(run):
    run.take([evaluated(1)])
    (end,) = run.lose("the API server does not answer")
    assert end.failure == FailureKind.LOST


def test_a_pod_that_is_replaced_before_it_said_anything_is_waited_for(run):
    run.take([Phase("Rescheduling"), Phase("Running"), evaluated(1)])
    assert run.ended is None


def test_a_job_of_several_tasks_ends_with_the_pod_that_evaluates(run):
    collector = {"uid": "two", "pod": "job-collector-0"}
    run.take([heard(1, Ended(), **collector), evaluated(1)])
    assert run.ended is None
    run.take([heard(2, Ended(), uid="three", pod="job-collector-1"), evaluated(2)])
    assert run.ended is None
    run.take([heard(3, Ended())])
    assert run.ended == Ended()


def test_of_several_pods_that_evaluate_the_first_counts(run):
    other = {"uid": "two", "pod": "job-evaluator-1"}
    events = run.take([evaluated(1), evaluated(1, **other), evaluated(2, **other), evaluated(2)])
    assert steps(events) == [100, 200]


def test_what_a_training_returned_without_an_evaluation_counts_when_its_job_is_over(run):
    run.take([heard(1, Ended(returned={"eval_value": 3.0}))])
    assert run.ended is None
    run.take([Ended()])
    assert run.ended == Ended(returned={"eval_value": 3.0})


def test_a_policy_that_diverged_is_no_failure(run):
    run.take([heard(1, Ended("diverged", error="nan")), failed("1")])
    assert run.ended == Ended("diverged", error="nan")


def test_nothing_goes_wrong_any_more_after_the_end(run):
    run.take([evaluated(1), heard(2, Ended()), failed("deleted", FailureKind.LOST)])
    assert run.ended == Ended()


def test_a_job_that_waits_says_for_what(run):
    first, then = run.take([Waiting("pod job-serial-0 is not scheduled")])
    assert "is DI-orchestrator running?" in first.reason
    assert then == Waiting("pod job-serial-0 is not scheduled")


@pytest.mark.parametrize(
    ("happened", "may_be_kept"),
    [
        ([evaluated(1), Phase("Rescheduling")], False),
        ([evaluated(1), heard(2, failed("boom"))], True),
        ([evaluated(1), failed("137", FailureKind.OUT_OF_MEMORY)], True),
    ],
)
def test_a_job_that_may_still_run_is_released_without_an_end_by_which_it_could_be_kept(
    tmp_path, happened, may_be_kept
):
    ends = []
    run = JobRun("job", tmp_path / "log.txt", lambda job, ended: not ends.append(ended))
    run.take(happened)
    assert run.stop()
    assert [end is not None for end in ends] == [may_be_kept]
