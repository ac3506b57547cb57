"""Several objectives in the report."""

from __future__ import annotations

import pytest

from ditk_ray.config.objectives import Objective
from ditk_ray.report.charts.objectives import objectives_chart
from ditk_ray.report.data import SweepData, gather
from ditk_ray.report.headline import headline
from ditk_ray.report.page import write_report
from ditk_ray.report.table import build_pareto_table, build_table
from ditk_ray.tracking.record import TrialState
from tests.report.contrast import LOW_CONTRAST
from tests.report.simulated import Simulation


@pytest.fixture
def both(simulation: Simulation) -> Simulation:
    """A sweep for a high score in little time: its trials 0, 1 and 3 are beaten by none."""
    simulation.record.more_objectives = (Objective("time", "min"),)
    for scores in ([50.0], [1.0, 90.0], [1.0, 2.0, 80.0], [1.0, 2.0, 3.0, 99.0]):
        simulation.add(scores, {"lr": scores[-1] / 1000})
    return simulation


def gathered(sweep: Simulation) -> SweepData:
    return gather(sweep.write())


def test_the_set_is_marked_and_joined_by_a_line_behind_which_the_others_are(both):
    chart = objectives_chart(gathered(both))
    others, front, marked, _ = chart.figure.data
    assert (others.x, others.y) == ((2.0,), (80.0,))
    assert (front.x, front.y) == ((0.0, 1.0, 3.0), (50.0, 90.0, 99.0))
    assert front.line.shape == "hv"
    assert sorted(zip(marked.x, marked.y, strict=True)) == list(zip(front.x, front.y, strict=True))
    assert [owner for owner, _ in marked.meta["owners"]] == [3, 1, 0]
    assert chart.figure.layout.xaxis.title.text == "time (less is better)"
    assert chart.figure.layout.yaxis.title.text == "eval_value (more is better)"
    assert "3 trials (diamonds) are beaten by none" in chart.caption


def test_where_more_is_better_the_line_falls_from_the_left(both):
    both.record.more_objectives = (Objective("env_step", "max"),)
    chart = objectives_chart(gathered(both))
    assert chart.figure.data[1].line.shape == "vh"
    assert chart.figure.data[1].x == (300,)
    assert "1 trial (diamonds) is beaten by none" in chart.caption


def test_of_three_objectives_two_are_drawn_without_a_line(both):
    both.record.more_objectives += (Objective("env_step", "min"),)
    chart = objectives_chart(gathered(both))
    assert [trace.mode for trace in chart.figure.data] == ["markers"] * 3
    assert "Drawn are eval_value and time only" in chart.caption


def test_the_table_has_the_set_with_all_objectives_the_best_first(both):
    table = build_pareto_table(gathered(both))
    assert [column.label for column in table.columns] == ["eval_value", "time", "lr"]
    assert [(row.trial.id, row.cells[0].text, row.cells[1].text) for row in table.rows] == [
        ("trial_00003", "99", "3"),
        ("trial_00001", "90", "1"),
        ("trial_00000", "50", "0"),
    ]


def test_one_objective_has_neither_chart_nor_table(simulation):
    simulation.add([1.0])
    sweep = gathered(simulation)
    assert objectives_chart(sweep) is None
    assert build_pareto_table(sweep) is None
    assert 'id="pareto"' not in write_report(simulation.write()).read_text()


def test_a_sweep_in_which_no_trial_has_all_objectives_says_so(simulation):
    simulation.record.more_objectives = (Objective("size", "min"),)
    simulation.add([1.0])
    text = write_report(simulation.write()).read_text()
    assert "No trial has a value for each objective." in text


def test_the_headline_counts_the_set_and_says_what_ended_the_sweep(both):
    both.record.why = "sweep.trials>=4"
    assert headline(gathered(both)) == (
        "4 trials in 1m40s, ended by sweep.trials>=4: the best, trial_00003, reached eval_value "
        "99 after 300 environment steps. 3 trials are in the Pareto set."
    )


def test_the_table_of_trials_says_what_ended_them_if_a_rule_did(both):
    assert "ended by" not in [column.label for column in build_table(gathered(both)).columns]
    both.add([1.0], state=TrialState.STOPPED, why="plateau(eval_value, 5)")
    table = build_table(gathered(both))
    place = [column.label for column in table.columns].index("ended by")
    told = {row.trial.id: row.cells[place].value for row in table.rows}
    assert told["trial_00004"] == "plateau(eval_value, 5)"
    assert told["trial_00000"] is None


@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_set_is_seen_and_selected_in_a_browser(opened, both, scheme):
    seen = opened(write_report(both.write()), color_scheme=scheme)
    seen.look_at("#pareto")
    assert seen.page.locator("#chart-objectives .points path").count() == 4
    assert seen.lines("chart-objectives") == 1
    assert seen.texts("#pareto tbody th") == ["trial_00003", "trial_00001", "trial_00000"]
    accent = seen.colour("#pareto tbody th button", "color")
    marked = seen.page.locator("#chart-objectives .points path").last
    assert marked.evaluate("mark => getComputedStyle(mark).fill") == accent
    seen.page.locator("#pareto tbody button", has_text="trial_00001").click()
    assert seen.text("#card-title") == "trial_00001"
    seen.look_at("#pareto")
    assert seen.page.locator("#chart-objectives .points path").count() == 4 + 1  # and the ring
    assert seen.page.evaluate(LOW_CONTRAST) == []
