"""Reading logs of any size, also while they grow."""

from __future__ import annotations

import tracemalloc

import pytest

from ditk_ray.tracking.log_reading import LogReader, TrialLogs, tail_start
from ditk_ray.tracking.logs import tail
from tests.tracking.written_sweep import WrittenSweep


@pytest.fixture
def sweep(tmp_path):
    made = WrittenSweep(tmp_path / "mine")
    made.trial(0)
    return made


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
