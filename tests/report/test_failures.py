from __future__ import annotations

import shutil

from ditk_ray.report.data import gather
from ditk_ray.report.failures import LINES, SHOWN, failures, retried_rows
from ditk_ray.report.page import render_page


def test_the_same_error_is_told_once_the_most_frequent_first(simulation):
    simulation.fail("ValueError: once", "one\n")
    simulation.fail("OSError: twice", "two\n")
    simulation.fail("OSError: twice", "three\n")
    first, second = failures(gather(simulation.write()))
    assert (first.error, len(first.trials), first.lines) == ("OSError: twice", 2, ["two"])
    assert (second.error, second.trials[0].id) == ("ValueError: once", "trial_00000")


def test_the_log_is_found_after_the_sweep_was_moved(simulation, tmp_path):
    simulation.fail("ValueError", "the end\n")
    moved = shutil.move(simulation.write(), tmp_path / "elsewhere")
    (failure,) = failures(gather(tmp_path / "elsewhere"))
    assert failure.lines == ["the end"]
    assert failure.log.startswith(str(moved))


def test_only_the_end_of_a_log_is_shown_without_the_colours_of_a_terminal(simulation):
    simulation.fail("ValueError", "".join(f"\x1b[31mline {n}\x1b[0m\r\n" for n in range(999)))
    (failure,) = failures(gather(simulation.write()))
    assert len(failure.lines) == LINES
    assert failure.lines[-1] == "line 998"


def test_a_failure_without_a_log_is_shown_too(simulation):
    trial = simulation.fail("ValueError", "")
    trial.error = "the actor died"
    (failure,) = failures(gather(simulation.write()))
    assert (failure.error, failure.log, failure.lines) == ("the actor died", None, [])


def test_many_different_failures_do_not_swell_the_page(simulation):
    for number in range(SHOWN + 5):
        simulation.fail(f"ValueError: {number}", "the end\n")
    found = failures(gather(simulation.write()))
    assert sum(bool(failure.lines) for failure in found) == SHOWN
    assert len(found) == SHOWN + 5


def test_attempts_that_were_tried_again_are_counted_by_what_they_failed_of(simulation):
    trial = simulation.fail("ValueError", "the end\n")
    trial.failures = [{"kind": "lost"}, {"kind": "stall"}, {"kind": "lost"}, {"kind": "bug"}]
    sweep = gather(simulation.write())
    assert retried_rows(sweep) == [
        ("lost", "2 attempts: trial_00000"),
        ("stall", "1 attempt: trial_00000"),
    ]
    assert "Tried again" in render_page(sweep)
