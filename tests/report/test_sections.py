from __future__ import annotations

import shutil

import pytest

from ditk_ray.record.record import SweepStatus, TrialState
from ditk_ray.report.data import MISSING, gather
from ditk_ray.report.page import render_page
from ditk_ray.report.sections import (
    LINES,
    SHOWN,
    failures,
    headline,
    retried_rows,
    trial_columns,
)
from tests.report.simulated import Simulation


def said(sweep: Simulation) -> str:
    return headline(gather(sweep.write()))


def test_a_finished_sweep(simulation):
    simulation.add([1.0, 200.0])
    simulation.add([1.0])
    assert said(simulation) == (
        "2 trials in 1m40s: the best, trial_00000, "
        "reached eval_value 200 after 100 environment steps."
    )


def test_the_lowest_wins_where_the_mode_is_min(tmp_path):
    sweep = Simulation(tmp_path, "min")
    sweep.add([5.0])
    sweep.add([0.25, 7.0])
    assert "the best, trial_00001, reached eval_value 0.25 after 0" in said(sweep)


def test_a_single_trial(simulation):
    simulation.add([3.5])
    assert said(simulation).startswith("1 trial in 1m40s: trial_00000 reached eval_value 3.5")


def test_an_interrupted_sweep(simulation):
    simulation.record.status = SweepStatus.INTERRUPTED
    simulation.add([3.5])
    simulation.add([1.0], state=TrialState.PAUSED)
    assert said(simulation).startswith(
        "Interrupted after 1m40s, 1 of 2 trials ended: the best, trial_00000, reached"
    )


def test_a_running_sweep_without_a_score(simulation):
    simulation.record.status, simulation.record.ended = SweepStatus.RUNNING, None
    simulation.add([], state=TrialState.RUNNING)
    assert "0 of 1 trial ended: none got a score yet." in said(simulation)


def test_nothing_but_nan_is_no_score(simulation):
    simulation.add([float("nan")], state=TrialState.PRUNED)
    assert said(simulation) == "1 trial in 1m40s: none got a score."


@pytest.mark.parametrize(("failed", "words"), [(1, "It failed."), (3, "All of them failed.")])
def test_a_sweep_that_failed(simulation, failed, words):
    for _ in range(failed):
        simulation.fail("ValueError", "")
    assert said(simulation).endswith(f"none got a score. {words}")


def test_a_trial_that_reports_no_steps(simulation):
    trial = simulation.add([2.0])
    trial.best_metrics = {"eval_value": 2.0}
    assert said(simulation) == "1 trial in 1m40s: trial_00000 reached eval_value 2."


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
    assert failure.log.is_relative_to(moved)


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


def test_the_best_come_first_and_those_without_a_score_last(tmp_path):
    sweep = Simulation(tmp_path, "min")
    sweep.add([], state=TrialState.PENDING)
    sweep.add([3.0])
    sweep.add([2.0])
    ordered = gather(sweep.write()).ordered
    assert [trial.id for trial in ordered] == ["trial_00002", "trial_00001", "trial_00000"]


def test_values_are_short_in_the_table_and_full_behind_it(simulation):
    simulation.add([1.0], {"a.rate": 0.123456789, "a.only": None})
    simulation.add([2.0], {"a.rate": 0.5})
    sweep = gather(simulation.write())
    rate, only = trial_columns(sweep)[-2:]
    assert (rate.label, rate.title, rate.is_number) == ("rate", "a.rate", True)
    assert not only.is_number
    first, second = sweep.trials
    assert (rate.text(first), rate.full(first), rate.full(second)) == ("0.1235", "0.123456789", "")
    assert (only.text(first), only.full(first)) == ("None", "")
    assert (only.text(second), only.full(second)) == (MISSING, None)


def test_nodes_and_attempts_are_shown_where_they_differ(simulation):
    simulation.add([1.0], node="one")
    simulation.add([1.0], node=None)
    labels = {column.label for column in trial_columns(gather(simulation.write()))}
    assert not {"node", "attempts"} & labels
    simulation.add([1.0], node="two", attempt=1)
    sweep = gather(simulation.write())
    columns = {column.label: column for column in trial_columns(sweep)}
    assert columns["attempts"].text(sweep.trials[2]) == "2"
    assert columns["node"].text(sweep.trials[2]) == "two"
