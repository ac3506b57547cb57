from __future__ import annotations

import pytest
from plotly.graph_objects import Figure

from ditk_ray.config.terms import Objective
from ditk_ray.record.record import TrialState
from ditk_ray.report import charts
from ditk_ray.report.charts import history, objectives_chart, trend
from ditk_ray.report.data import SweepData, gather, log_ticks
from ditk_ray.report.page import write_report
from ditk_ray.report.parameter_charts import ABSENT, agreement, parallel, parameter_charts
from ditk_ray.report.sections import headline, pareto_columns, trial_columns
from tests.report.contrast import LOW_CONTRAST
from tests.report.simulated import Simulation, simulate


def drawn(chart) -> Figure:
    """Return a chart's figure as Plotly takes it, which refuses what it does not know."""
    return Figure(chart.figure)


def traces(chart, owned=True):
    return [t for t in drawn(chart).data if ("owners" in (t.meta or {})) == owned]


def test_points_know_whose_they_are(tmp_path):
    sweep = gather(simulate(tmp_path, 10, 6).write())
    curves = charts.learning_curves(sweep)
    for chart in [curves, history(sweep), parallel(sweep), *parameter_charts(sweep)]:
        for trace in traces(chart):
            assert sum(points for _, points in trace.meta["owners"]) == len(trace.x) == len(trace.y)


def test_long_curves_are_thinned_and_short_ones_whole(tmp_path, monkeypatch):
    sweep = Simulation(tmp_path)
    sweep.add([float(n % 17) for n in range(5000)])
    data = gather(sweep.write())
    chart = charts.learning_curves(data)
    assert 500 < len(drawn(chart).data[0].x) <= 1005
    monkeypatch.setattr(charts, "MAX_CURVE_POINTS", 0)
    assert len(drawn(charts.learning_curves(data)).data[0].x) < 70


def test_without_steps_curves_run_over_evaluations(simulation):
    trial = simulation.add([1.0])
    simulation.write_metrics(trial, [{"eval_value": 1.0}, {"eval_value": 4.0}])
    trial.best_metrics = {"eval_value": 4.0}
    chart = charts.learning_curves(gather(simulation.write()))
    assert drawn(chart).layout.xaxis.title.text == "evaluation"
    assert list(drawn(chart).data[0].x) == [1, 2, None]
    assert (drawn(chart).data[-1].x, drawn(chart).data[-1].y) == ((2,), (4.0,))


def test_the_best_so_far_follows_the_mode(tmp_path):
    sweep = Simulation(tmp_path, "min")
    for score in (5.0, 3.0, 4.0, 1.0):
        sweep.add([score])
    chart = history(gather(sweep.write()))
    assert list(drawn(chart).data[1].y) == [5.0, 3.0, 3.0, 1.0]
    assert "to 1, came with trial_00003, number 4 of 4" in chart.caption


def test_one_trial_has_no_history_and_nothing_to_compare(simulation):
    simulation.add([1.0], {"a": 1})
    sweep = gather(simulation.write())
    assert history(sweep) is None
    assert parallel(sweep) is None
    assert parameter_charts(sweep) == []


def test_a_parameter_that_a_trial_does_not_have_is_shown_as_absent(simulation):
    simulation.add([1.0], {"a": 1, "b": 1.0})
    simulation.add([2.0], {"a": 2, "b": 2.0})
    simulation.add([3.0], {"a": 3})
    chart = parallel(gather(simulation.write()))
    assert ABSENT in [y for trace in traces(chart) for y in trace.y]
    assert "absent" in [label.text for label in drawn(chart).layout.annotations]


def test_the_caption_tells_what_the_best_agree_on(tmp_path):
    text = agreement(gather(simulate(tmp_path, 60, 5).write()))
    assert text.startswith("The best 6 agree most on learning_rate: 0.000")


def test_so_many_trials_that_a_page_would_be_slow_are_drawn_in_part(tmp_path, monkeypatch):
    monkeypatch.setattr(charts, "MAX_POINTS", 20)
    sweep = gather(simulate(tmp_path, 50, 3).write())
    shown = charts.drawn_trials(sweep)
    assert len(shown) == 20
    assert {trial.id for trial in sweep.ranked[:5]} <= {trial.id for trial in shown}
    assert "20 of 50 trials" in charts.notes_on_points(sweep)


def test_log_axes_are_marked_by_round_numbers():
    assert list(log_ticks(1e-5, 1e-1).values()) == ["1e-5", "1e-4", "1e-3", "1e-2", "1e-1"]
    assert list(log_ticks(1e-3, 1).values()) == ["0.001", "0.01", "0.1", "1"]
    assert list(log_ticks(1000, 20000).values()) == ["1000", "2000", "5000", "10000", "20000"]
    assert len(log_ticks(1e-12, 1e12)) <= 6


def test_a_rise_and_a_fall_are_told():
    numbers = [float(n) for n in range(10)]
    assert trend(numbers, numbers, "max") == "The score rises with it (rank correlation 1.00)."
    assert "falls" in trend(numbers, numbers[::-1], "max")


@pytest.mark.parametrize("mode", ["max", "min"])
def test_a_best_place_in_the_middle_is_told(mode):
    places = [float(n) for n in range(50)]
    sign = 1 if mode == "max" else -1
    scores = [sign * -abs(place - 24.5) for place in places]
    assert trend(places, scores, mode).startswith("Best between 20 and 29:")


def test_noise_is_told_as_no_trend_and_few_or_equal_trials_as_such():
    assert trend([1.0, 2.0], [1.0, 2.0], "max") == "Too few trials for a trend."
    assert trend([1.0] * 9, [2.0] * 9, "max") == "No trend."
    alternating = [float(n % 2) for n in range(40)]
    assert trend([float(n) for n in range(40)], alternating, "max").startswith("No clear trend")
    mixed = [3.0, 9.0, 1.0, 7.0, 2.0, 8.0, 4.0, 6.0]
    assert trend([float(n) for n in range(8)], mixed, "max").startswith("No clear trend")


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
    others, front, marked = drawn(chart).data
    assert (others.x, others.y) == ((2.0,), (80.0,))
    assert (front.x, front.y) == ((0.0, 1.0, 3.0), (50.0, 90.0, 99.0))
    assert front.line.shape == "hv"
    assert sorted(zip(marked.x, marked.y, strict=True)) == list(zip(front.x, front.y, strict=True))
    assert [owner for owner, _ in marked.meta["owners"]] == [3, 1, 0]
    assert drawn(chart).layout.xaxis.title.text == "time (less is better)"
    assert drawn(chart).layout.yaxis.title.text == "eval_value (more is better)"
    assert "3 trials (diamonds) are beaten by none" in chart.caption


def test_where_more_is_better_the_line_falls_from_the_left(both):
    both.record.more_objectives = (Objective("env_step", "max"),)
    chart = objectives_chart(gathered(both))
    assert drawn(chart).data[1].line.shape == "vh"
    assert drawn(chart).data[1].x == (300,)
    assert "1 trial (diamonds) is beaten by none" in chart.caption


def test_of_three_objectives_two_are_drawn_without_a_line(both):
    both.record.more_objectives += (Objective("env_step", "min"),)
    chart = objectives_chart(gathered(both))
    assert [trace.mode for trace in drawn(chart).data] == ["markers"] * 2
    assert "Drawn are eval_value and time only" in chart.caption


def test_the_table_has_the_set_with_all_objectives_the_best_first(both):
    sweep = gathered(both)
    columns = pareto_columns(sweep)
    assert [column.label for column in columns] == ["eval_value", "time", "lr"]
    assert [(t.id, columns[0].text(t), columns[1].text(t)) for t in sweep.pareto] == [
        ("trial_00003", "99", "3"),
        ("trial_00001", "90", "1"),
        ("trial_00000", "50", "0"),
    ]


def test_one_objective_has_neither_chart_nor_table(simulation):
    simulation.add([1.0])
    sweep = gathered(simulation)
    assert objectives_chart(sweep) is None
    assert pareto_columns(sweep) == []
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
    assert "ended by" not in [column.label for column in trial_columns(gathered(both))]
    both.add([1.0], state=TrialState.STOPPED, why="plateau(eval_value, 5)")
    sweep = gathered(both)
    (column,) = [column for column in trial_columns(sweep) if column.label == "ended by"]
    assert column.text(sweep.trials[4]) == "plateau(eval_value, 5)"
    assert column.full(sweep.trials[0]) is None


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
