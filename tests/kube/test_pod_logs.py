"""Which lines of a log that is read in pieces are new."""

from __future__ import annotations

from ditk_ray.kube.pod_logs import SeenLines

LOG = [
    "2026-01-01T10:00:00.100000000Z first",
    "2026-01-01T10:00:01.200000000Z same",
    "2026-01-01T10:00:01.200000000Z same",
    "2026-01-01T10:00:02.300000000Z of stderr",
    "2026-01-01T10:00:02.299999999Z of stdout",
    "2026-01-01T10:00:03.400000000Z last",
]


def served(since: str | None) -> list[str]:
    """Return what the API gives from a time on: whole seconds, line by line."""
    return [line for line in LOG if since is None or line[:19] >= since[:19]]


def test_every_line_is_new_once_wherever_reading_breaks_off() -> None:
    for first in range(len(LOG) + 1):
        for second in range(len(LOG) + 1):
            position = SeenLines()
            read = []
            for count in (first, second, len(LOG)):
                lines = served(position.since())[:count]
                read += [text for line in lines if (text := position.new_text(line)) is not None]
            assert read == [line.partition(" ")[2] for line in LOG], (first, second)


def test_a_log_that_was_rotated_meanwhile_loses_no_line_that_is_there() -> None:
    position = SeenLines()
    for line in LOG[:4]:
        position.new_text(line)
    assert position.since() == "2026-01-01T10:00:01Z"
    assert [position.new_text(line) for line in LOG[3:]] == [None, "of stdout", "last"]


def test_times_with_an_offset_and_lines_without_a_time_are_understood() -> None:
    position = SeenLines()
    assert position.new_text("2026-01-01T18:00:05.5+08:00 there") == "there"
    assert position.since() == "2026-01-01T10:00:04Z"
    assert position.new_text("2026-01-01T10:00:05.5Z there") is None
    assert position.new_text("2026-01-01T10:00:06Z") == ""
    assert position.new_text("unable to retrieve container logs") == (
        "unable to retrieve container logs"
    )


def test_what_is_older_than_the_first_line_of_a_tail_is_not_new() -> None:
    position = SeenLines(begins_late=True)
    lines = [f"2030-01-01T00:00:00.{number}Z line {number}" for number in (1, 25, 3)]
    assert position.new_text(lines[1]) == "line 25"
    assert position.since() is not None
    assert [position.new_text(line) for line in lines] == [None, None, "line 3"]
