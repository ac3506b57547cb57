"""The files that a trial's attempts leave."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from ditk_ray.record.trial_folder import (
    LogReader,
    TrialLogs,
    attempt_logs,
    attempts,
    by_attempt,
    event_folders,
    read_metrics,
    seed_folders,
    tail,
    tail_start,
)
from tests.record.written_sweep import WrittenSweep


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


def texts(logs):
    return [tuple(piece) for piece in logs.read()]


def test_a_log_is_read_on_from_where_it_was_left(tmp_path):
    path = tmp_path / "log.txt"
    path.write_text("one\n")
    reader = LogReader(path)
    assert list(reader.read()) == ["one\n"]
    assert list(reader.read()) == []
    with path.open("a") as file:
        file.write("two\n")
    assert list(reader.read()) == ["two\n"]


def test_what_is_no_text_becomes_replacement_characters(tmp_path):
    path = tmp_path / "log.txt"
    path.write_bytes(b"a\xff\xfe\x00b\n")
    assert "".join(LogReader(path).read()) == "a��\x00b\n"


def test_a_character_that_is_written_in_two_parts_is_read_whole(tmp_path):
    path = tmp_path / "log.txt"
    path.write_bytes("ä".encode()[:1])
    reader = LogReader(path)
    assert list(reader.read()) == []
    path.write_bytes("ä".encode())
    assert list(reader.read()) == ["ä"]


def test_a_log_that_is_written_anew_is_read_anew(tmp_path):
    path = tmp_path / "log.txt"
    path.write_text("a long text\n")
    reader = LogReader(path)
    list(reader.read())
    path.write_text("new\n")
    assert list(reader.read()) == ["new\n"]


def test_a_large_log_is_never_in_memory_as_a_whole(tmp_path):
    path = tmp_path / "log.txt"
    path.write_bytes(b"a line of a log\n" * 2_000_000)  # 32 MB
    tracemalloc.start()
    length = sum(len(text) for text in LogReader(path).read())
    start = tail_start(path, 5)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert length == path.stat().st_size
    assert start == length - 5 * 16
    assert peak < 2_000_000


@pytest.mark.parametrize(
    ("content", "lines", "expected"),
    [
        (b"a\nb\nc\n", 1, b"c\n"),
        (b"a\nb\nc\n", 2, b"b\nc\n"),
        (b"a\nb\nc", 1, b"c"),
        (b"a\nb\nc", 2, b"b\nc"),
        (b"a\nb\nc\n", 3, b"a\nb\nc\n"),
        (b"a\nb\nc\n", 30, b"a\nb\nc\n"),
        (b"a\n\n\n", 2, b"\n\n"),
        (b"\n", 1, b"\n"),
        (b"", 1, b""),
        (b"x" * 200_000, 1, b"x" * 200_000),
        (b"x" * 70_000 + b"\n" + b"y" * 70_000 + b"\n", 1, b"y" * 70_000 + b"\n"),
    ],
)
def test_the_last_lines_begin_where_a_person_would_say(tmp_path, content, lines, expected):
    path = tmp_path / "log.txt"
    path.write_bytes(content)
    assert content[tail_start(path, lines) :] == expected


def test_the_end_of_a_log_is_its_last_lines_and_of_a_very_long_one_only_the_end(tmp_path):
    path = tmp_path / "log.txt"
    path.write_text("first\n" * 9000 + "\n".join("abc"))
    assert tail(path, 3) == ["a", "b", "c"]
    path.write_text("x" * 1_000_000 + "\nlast\n")
    long, last = tail(path, 2)
    assert (len(long) < 20_000, set(long), last) == (True, {"x"}, "last")
    assert tail(tmp_path / "missing.txt") == []


def test_of_several_attempts_the_newest_is_read(sweep):
    sweep.log(0, "old\n", attempt=0)
    sweep.log(0, "new\n", attempt=1)
    assert texts(TrialLogs(sweep.folder / "trial_00000")) == [(1, "", "new\n")]


def test_an_older_attempt_is_read_if_it_is_asked_for(sweep):
    sweep.log(0, "old\n", attempt=0)
    sweep.log(0, "new\n", attempt=1)
    assert texts(TrialLogs(sweep.folder / "trial_00000", attempt=0)) == [(0, "", "old\n")]


def test_a_new_attempt_follows_the_rest_of_the_one_before(sweep):
    logs = TrialLogs(sweep.folder / "trial_00000")
    assert texts(logs) == []
    sweep.log(0, "a", attempt=0)
    assert texts(logs) == [(0, "", "a")]
    sweep.log(0, "b", attempt=0)
    sweep.log(0, "c", attempt=1)
    assert texts(logs) == [(0, "", "b"), (1, "", "c")]
    sweep.log(0, "d", attempt=1)
    assert texts(logs) == [(1, "", "d")]


def test_only_one_seed_is_read_if_it_is_asked_for(sweep):
    for seed in ("seed_0", "seed_1"):
        sweep.log(0, f"{seed}\n", seed=seed)
    folder = sweep.folder / "trial_00000"
    assert texts(TrialLogs(folder, seed="seed_1")) == [(0, "seed_1", "seed_1\n")]
    assert len(texts(TrialLogs(folder))) == 2


def test_the_last_lines_are_of_what_is_there_at_first_not_of_what_comes(sweep):
    sweep.log(0, "1\n2\n3\n")
    logs = TrialLogs(sweep.folder / "trial_00000", lines=1)
    assert texts(logs) == [(0, "", "3\n")]
    sweep.log(0, "4\n5\n")
    sweep.log(0, "6\n7\n", attempt=1)
    assert texts(logs) == [(0, "", "4\n5\n"), (1, "", "6\n7\n")]
