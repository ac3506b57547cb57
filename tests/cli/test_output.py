from __future__ import annotations

import pytest

from ditk_ray.cli.output import LineBuffer
from ditk_ray.cli.views import show_state
from ditk_ray.record.record import TrialRecord, TrialState

LOST, STALL = {"kind": "lost"}, {"kind": "stall"}


@pytest.mark.parametrize(
    ("trial", "shown"),
    [
        (TrialRecord("a", {}, TrialState.RUNNING), "running"),
        (TrialRecord("a", {}, TrialState.PAUSED), "paused"),
        (TrialRecord("a", {}, TrialState.PAUSED, is_held=True), "paused by hand"),
        (
            TrialRecord("a", {}, TrialState.RUNNING, failures=[LOST, STALL, LOST]),
            "running (after 2 lost, stall)",
        ),
        (TrialRecord("a", {}, TrialState.FAILED, error="x", failures=[LOST]), "failed"),
    ],
)
def test_a_trials_state_says_what_it_went_through(trial, shown):
    assert show_state(trial) == shown


def test_text_in_pieces_becomes_lines_and_a_line_without_an_end_does_not_wait():
    lines = LineBuffer()
    assert (lines.take("a\nb"), lines.take("c\n\n"), lines.close()) == (["a"], ["bc", ""], [])
    assert (lines.take("50%\r" * 20_000), lines.close()) == (["50%\r" * 20_000], [])
    assert (lines.take("d"), lines.close(), lines.close()) == ([], ["d"], [])
