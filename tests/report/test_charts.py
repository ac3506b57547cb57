from __future__ import annotations

import pytest

from ditk_ray.report.charts import drawn, learning_curves
from ditk_ray.report.charts.findings import trend
from ditk_ray.report.charts.history import history
from ditk_ray.report.charts.parallel import ABSENT, agreement, parallel
from ditk_ray.report.charts.parameters import parameter_charts
from ditk_ray.report.charts.ticks import log_ticks
from ditk_ray.report.data import gather
from tests.report.simulated import Simulation, simulate


def traces(chart, owned=True):
    return [t for t in chart.figure.data if ("owners" in (t.meta or {})) == owned]


def test_points_know_whose_they_are(tmp_path):
    sweep = gather(simulate(tmp_path, 10, 6).write())
    charts = [
        learning_curves.learning_curves(sweep),
        history(sweep),
        parallel(sweep),
        *parameter_charts(sweep),
    ]
    for chart in charts:
        for trace in traces(chart):
            assert sum(points for _, points in trace.meta["owners"]) == len(trace.x) == len(trace.y)


def test_long_curves_are_thinned_and_short_ones_whole(tmp_path, monkeypatch):
    sweep = Simulation(tmp_path)
    sweep.add([float(n % 17) for n in range(5000)])
    data = gather(sweep.write())
    chart = learning_curves.learning_curves(data)
    assert 500 < len(chart.figure.data[0].x) <= 1005
    monkeypatch.setattr(learning_curves, "MAX_POINTS", 0)
    assert len(learning_curves.learning_curves(data).figure.data[0].x) < 70


def test_without_steps_curves_run_over_evaluations(simulation):
    trial = simulation.add([1.0])
    simulation.write_metrics(trial, [{"eval_value": 1.0}, {"eval_value": 4.0}])
    trial.best_metrics = {"eval_value": 4.0}
    chart = learning_curves.learning_curves(gather(simulation.write()))
    assert chart.figure.layout.xaxis.title.text == "evaluation"
    assert list(chart.figure.data[0].x) == [1, 2, None]
    assert (chart.figure.data[-2].x, chart.figure.data[-2].y) == ((2,), (4.0,))


def test_the_best_so_far_follows_the_mode(tmp_path):
    sweep = Simulation(tmp_path, "min")
    for score in (5.0, 3.0, 4.0, 1.0):
        sweep.add([score])
    chart = history(gather(sweep.write()))
    assert list(chart.figure.data[1].y) == [5.0, 3.0, 3.0, 1.0]
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
    assert "absent" in [label.text for label in chart.figure.layout.annotations]


def test_the_caption_tells_what_the_best_agree_on(tmp_path):
    text = agreement(gather(simulate(tmp_path, 60, 5).write()))
    assert text.startswith("The best 6 agree most on learning_rate: 0.000")


def test_so_many_trials_that_a_page_would_be_slow_are_drawn_in_part(tmp_path, monkeypatch):
    monkeypatch.setattr(drawn, "MAX_POINTS", 20)
    sweep = gather(simulate(tmp_path, 50, 3).write())
    shown = drawn.drawn_trials(sweep)
    assert len(shown) == 20
    assert {trial.id for trial in sweep.ranked[:5]} <= {trial.id for trial in shown}
    assert "20 of 50 trials" in drawn.notes_on_points(sweep)


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
