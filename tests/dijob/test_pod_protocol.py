"""Messages among the lines of a pod's log."""

from __future__ import annotations

import base64
import json
import math
from typing import Any

import pytest

from ditk_ray.config.terms import FailureKind
from ditk_ray.dijob.pod_protocol import PodProtocol
from ditk_ray.dijob.pod_runner import MARK, MAX_RESULT_BYTES
from ditk_ray.dijob.tracker import Message
from ditk_ray.execution.executor import Ended, Evaluated


def marked(**said: Any) -> str:
    return MARK + json.dumps(said)


def read(line: str) -> Message | None:
    return PodProtocol().read(line)


def parts_of(data: bytes, size: int) -> list[str]:
    pieces = [data[at : at + size] for at in range(0, len(data), size)]
    return [
        marked(
            n=number,
            kind="result",
            part=number,
            parts=len(pieces),
            data=base64.b64encode(piece).decode(),
        )
        for number, piece in enumerate(pieces, start=1)
    ]


def test_an_evaluation_comes_with_its_number_and_metrics() -> None:
    line = marked(n=3, kind="evaluation", metrics={"eval_value": 9.5, "env_step": 40})

    assert read(line) == Message(3, Evaluated(3, {"eval_value": 9.5, "env_step": 40}))


def test_numbers_that_are_not_finite_come_by_their_names() -> None:
    line = marked(n=1, kind="evaluation", metrics={"a": "nan", "b": "inf", "c": "-inf", "d": "x"})

    message = read(line)

    assert message is not None and isinstance(message.said, Evaluated)
    metrics = message.said.metrics
    assert math.isnan(metrics["a"])
    assert (metrics["b"], metrics["c"]) == (math.inf, -math.inf)
    assert "d" not in metrics


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            marked(n=8, kind="end", returned={"eval_value": 200.0}),
            Message(8, Ended(returned={"eval_value": 200.0})),
        ),
        (
            marked(n=2, kind="error", message="no room", failure="disk_full"),
            Message(2, Ended("failed", error="no room", failure=FailureKind.DISK_FULL)),
        ),
        (marked(n=2, kind="diverged", message="nan"), Message(2, Ended("diverged", error="nan"))),
    ],
)
def test_an_end_says_how(line: str, message: Message) -> None:
    assert read(line) == message


def test_what_was_printed_without_an_end_of_line_does_not_hide_a_message() -> None:
    assert read("loading... " + marked(n=1, kind="end", returned={})) == Message(1, Ended())


@pytest.mark.parametrize(
    "line",
    [
        "",
        "Episode 1 of 5",
        MARK,
        MARK + '{"n": 1, "kind": "evaluation", "met',
        MARK + '"n"',
        MARK + "[1, 2]",
        MARK + "[" * 9000,
        f'MARK = "{MARK}"',
        marked(kind="end", returned={}),
        marked(n=0, kind="end", returned={}),
        marked(n=True, kind="end", returned={}),
        marked(n="1", kind="end", returned={}),
        marked(n=1, kind="evaluation", metrics=[1, 2]),
        marked(n=1, kind="evaluation"),
        marked(n=1, kind="error", message="x", failure="witchcraft"),
        marked(n=1, kind="hello"),
        marked(n=1, kind="result", part=2, parts=1, data=""),
        marked(n=1, kind="result", part=1, parts=10**9, data=""),
        marked(n=1, kind="result", part=1, parts=1, data="no base64!"),
        marked(n=1, kind="evaluation", metrics={"x": 1.0, "y" * 20000: 1.0}),
    ],
)
def test_a_line_that_is_not_a_whole_and_sound_message_is_none(line: str) -> None:
    assert read(line) is None


def test_a_result_is_joined_of_its_parts() -> None:
    data = bytes(range(256)) * 40
    lines = PodProtocol()

    messages = [lines.read(line) for line in parts_of(data, 4000)]

    assert messages == [None, None, Message(3, data)]


def test_a_result_that_lacks_a_part_is_none_and_the_next_whole_one_counts() -> None:
    first, _, last = parts_of(b"x" * 9000, 4000)
    lines = PodProtocol()

    assert [lines.read(first), lines.read(last)] == [None, None]
    assert lines.read(parts_of(b"y", 10)[0]) == Message(1, b"y")


def test_a_result_that_is_too_large_is_none() -> None:
    lines = PodProtocol()

    assert not any(lines.read(line) for line in parts_of(b"x" * (MAX_RESULT_BYTES + 1), 4000))
