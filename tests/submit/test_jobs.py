"""Jobs before they are sent: their words, their requests; and how much of a log was shown."""

from __future__ import annotations

import shlex

import pytest

from ditk_ray.errors import BadConfigError
from ditk_ray.submit.code import CodePackage
from ditk_ray.submit.dispatch import LogPosition
from ditk_ray.submit.jobs import (
    JobState,
    JobStatus,
    SubmitOptions,
    make_job,
    read_jobs,
    split_words,
)

COMMANDS = {"tune", "status"}
CODE = CodePackage("_ray_pkg_1.zip", b"")


@pytest.mark.parametrize("words", [["tune", "--list"], ["ditk-ray", "tune", "--list"]])
def test_a_command_of_ours_runs_with_the_code_that_is_shipped(words):
    job = make_job(words, COMMANDS)
    assert job.command == ("python", "-m", "ditk_ray.cli.main", "tune", "--list")
    assert job.is_own
    assert job.id.startswith("tune-")


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (["python", "-u", "a/train_it.py", "--x"], "train-it-"),
        (["/usr/bin/python3.11"], "python3-"),
        (["./run.sh"], "run-"),
        (["Ä"], "job-"),
    ],
)
def test_any_program_runs_as_it_is(words, name):
    job = make_job(words, COMMANDS)
    assert job.command == tuple(words)
    assert not job.is_own
    assert job.id.startswith(name)
    assert job.id != make_job(words, COMMANDS).id


def test_words_reach_the_program_as_they_are_though_ray_asks_for_a_line():
    words = ["python", "a b.py", "$HOME", "it's", "*", "", "a;b", "\n"]
    body = SubmitOptions().body(make_job(words, COMMANDS), [CODE])
    assert shlex.split(body["entrypoint"]) == words


def test_a_request_says_what_the_job_runs_with():
    options = SubmitOptions(
        env=["A=1"],
        metadata=["who=me"],
        entrypoint_cpus=0.5,
        entrypoint_gpus=1.0,
        entrypoint_memory=2**30,
    )
    job = make_job(["true"], COMMANDS)
    body = options.body(job, [CODE, CODE])
    assert body["runtime_env"] == {
        "working_dir": CODE.uri,
        "py_modules": [CODE.uri],
        "env_vars": {"A": "1"},
    }
    assert body["metadata"] == {"who": "me"}
    assert body["entrypoint_num_cpus"] == 0.5
    assert body["entrypoint_num_gpus"] == 1.0
    assert body["entrypoint_memory"] == 2**30
    assert "entrypoint_num_cpus" not in SubmitOptions().body(job, [CODE])


def test_jobs_are_separated_by_three_dashes():
    words = ["tune", "--", "a", "---", "python", "b.py"]
    assert split_words(words) == [["tune", "--", "a"], ["python", "b.py"]]
    for wrong in (["---", "a"], ["a", "---"], ["a", "---", "---", "b"]):
        with pytest.raises(BadConfigError, match="no command before or after"):
            split_words(wrong)


def test_jobs_are_read_from_a_file(tmp_path):
    file = tmp_path / "jobs.yaml"
    file.write_text("- [tune, --seed, 3]\n- [python, a b.py]\n")
    assert read_jobs(file) == [["tune", "--seed", "3"], ["python", "a b.py"]]
    file.write_text("- tune --seed 3\n- [a]\n- []\n")
    with pytest.raises(BadConfigError) as told:
        read_jobs(file)
    assert [problem.where[-3:] for problem in told.value.problems] == ["[0]", "[2]"]
    for text in ("{}", "[", ""):
        file.write_text(text)
        with pytest.raises(BadConfigError):
            read_jobs(file)


def test_of_a_log_that_is_read_again_only_what_is_new_is_shown():
    shown: list[str] = []
    position = LogPosition(shown.append)
    log = "one\ntwo\nthree\n"

    start = position.add(0, log[:5])
    position.add(start, log[5:6])
    position.add(0, log[:3])  # another stream, cut before it got as far
    start = position.add(0, log[:2])
    start = position.add(start, log[2:9])
    position.add(0, log)
    position.add(0, log)

    assert "".join(shown) == log


@pytest.mark.parametrize(
    ("status", "told", "code"),
    [
        (JobStatus.SUCCEEDED, 0, 0),
        (JobStatus.FAILED, 7, 7),
        (JobStatus.FAILED, -9, 1),
        (JobStatus.FAILED, None, 1),
        (JobStatus.STOPPED, None, 1),
        (JobStatus.LOST, None, 1),
    ],
)
def test_the_exit_code_is_the_jobs_own_where_there_is_one(status, told, code):
    assert JobState("id", status, exit_code=told).code == code
