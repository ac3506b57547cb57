from __future__ import annotations

import json
import resource
import subprocess
import sys

import numpy as np
import pytest

from ditk_ray.record.journal import EventWriter, journal_path, read_chunk, read_events


def all_of(folder, max_bytes=1024 * 1024):
    events, start = [], 0
    while True:
        more, end = read_chunk(journal_path(folder), start, max_bytes)
        if end == start:
            return events
        events, start = events + more, end


@pytest.mark.parametrize("max_bytes", [10, 100, 10**6])
def test_what_is_appended_is_read_in_its_order_whatever_the_size_of_the_bites(tmp_path, max_bytes):
    writer = EventWriter(journal_path(tmp_path))
    for number in range(50):
        writer.append("metrics", trial="t", step=number, values={"x": number / 3})

    events = all_of(tmp_path, max_bytes)

    assert [event["step"] for event in events] == list(range(50))
    assert events[7]["values"] == {"x": 7 / 3}
    assert all(event["kind"] == "metrics" and event["time"] > 10**12 for event in events)


def test_values_that_are_not_plain_are_written_nevertheless(tmp_path):
    values = {"nan": float("nan"), "np": np.float64(2), "array": np.arange(2), "path": tmp_path}
    EventWriter(journal_path(tmp_path)).append("metrics", values=values)

    (event,) = all_of(tmp_path)

    assert event["values"]["nan"] != event["values"]["nan"]
    assert event["values"]["np"] == 2
    assert event["values"]["array"] == [0, 1]
    assert event["values"]["path"] == str(tmp_path)


def test_a_line_that_is_not_yet_whole_is_left_for_later(tmp_path):
    writer = EventWriter(journal_path(tmp_path))
    writer.append("a")
    end = journal_path(tmp_path).stat().st_size
    with journal_path(tmp_path).open("a") as file:
        file.write('{"kind": "b"')

    events, read_to = read_chunk(journal_path(tmp_path), 0)

    assert [event["kind"] for event in events] == ["a"]
    assert read_to == end


def test_a_line_that_was_cut_off_by_a_crash_costs_only_itself(tmp_path):
    EventWriter(journal_path(tmp_path)).append("a")
    with journal_path(tmp_path).open("a") as file:
        file.write('{"kind": "b", "va')

    EventWriter(journal_path(tmp_path)).append("c")

    assert [event["kind"] for event in all_of(tmp_path)] == ["a", "c"]


def test_events_outlive_a_process_that_is_killed(tmp_path):
    code = (
        "import os, signal, sys; from pathlib import Path;"
        "from ditk_ray.record.journal import EventWriter, journal_path;"
        "w = EventWriter(journal_path(Path(sys.argv[1]))); [w.append('a') for _ in range(100)];"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)])

    assert len(all_of(tmp_path)) == 100


def test_while_the_disk_is_full_events_wait_and_none_is_torn(tmp_path):
    """The full disk is a limit on the size of files, which some bytes of a line still fit into."""
    writer = EventWriter(journal_path(tmp_path))
    writer.append("before")
    before = journal_path(tmp_path).read_bytes()
    usual = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 10, usual[1]))
    try:
        writer.append("first")
        writer.append("second")
        assert journal_path(tmp_path).read_bytes() == before
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, usual)
    writer.append("third")
    assert writer.close()

    kinds = [event["kind"] for event in all_of(tmp_path)]
    assert kinds == ["before", "first", "second", "third"]
    assert writer.size == journal_path(tmp_path).stat().st_size


def test_events_of_one_kind_can_be_asked_for(tmp_path):
    writer = EventWriter(journal_path(tmp_path))
    for kind in ("sweep", "trial", "sweep"):
        writer.append(kind)

    assert len(read_events(tmp_path, "sweep")) == 2
    assert read_events(tmp_path / "nowhere", "sweep") == []


def test_others_cannot_read_it_since_it_may_hold_a_password(tmp_path):
    EventWriter(journal_path(tmp_path)).append("sweep", uri="postgresql://me:secret@host/db")

    assert journal_path(tmp_path).parent.stat().st_mode & 0o077 == 0
    assert json.loads(journal_path(tmp_path).read_text())["kind"] == "sweep"
