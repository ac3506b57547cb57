"""What a sweep learns from an earlier one."""

from __future__ import annotations

import math
from typing import Any

import pytest
from ray import tune

from ditk_ray.config.space import build_space, when
from ditk_ray.search.searchers import build_searcher
from ditk_ray.search.warm_start import EvaluatedPoint, evaluated_points, fitting_points, teach
from tests.search.spaces import OBJECTIVE, RATE, distance, only_rate


def row(value: Any, state: str = "succeeded", **others: Any) -> dict[str, Any]:
    values = {"params": {RATE: 1e-3}, "state": state, "best_metrics": {"eval_value": value}}
    return values | others


def test_trials_count_that_ended_well_and_have_a_score():
    rows = [
        row(1.0),
        row(2, "stopped"),
        row(3.0, "failed"),
        row(4.0, "running"),
        row(math.nan),
        row(None),
        row(5.0, changes=[{"env_step": 0, "params": {}}]),
        row(6.0, best_metrics={}),
    ]
    assert [point.values for point in evaluated_points(rows, OBJECTIVE)] == [(1.0,), (2.0,)]


def test_several_objectives_come_from_the_same_evaluation():
    rows = [row(1.0, best_metrics={"eval_value": 1.0, "time": 3}), row(2.0)]
    (point,) = evaluated_points(rows, [("eval_value", "max"), ("time", "min")])
    assert point.values == (1.0, 3.0)


@pytest.mark.parametrize(
    "params",
    [{}, {"a": 2.0, "b": 1}, {"a": 0.5}, {"a": 0.5, "b": 3}, {"a": 0.5, "b": 1, "d": 1}],
)
def test_points_that_do_not_lie_in_the_space_are_left_out(params):
    space = build_space(
        {
            "a": tune.uniform(0, 1),
            "b": tune.choice([1, 2]),
            "c": when("b", 2, tune.uniform(0, 1)),
        }
    )
    good = EvaluatedPoint({"a": 0.5, "b": 1}, (1.0,))
    (kept,) = fitting_points([EvaluatedPoint(params, (1.0,)), good], space, seed=1)
    assert (kept.params["a"], kept.params["b"]) == (0.5, 1)
    assert 0 <= kept.params["c"] <= 1


def points() -> list[EvaluatedPoint]:
    rates = [10 ** -(1 + number / 3) for number in range(13)]
    return [EvaluatedPoint({RATE: rate}, (-distance({RATE: rate}),)) for rate in rates]


@pytest.mark.parametrize("name", ["tpe", "gp", "cmaes", "nsga2"])
def test_a_searcher_that_can_be_told_needs_to_run_nothing_again(name):
    searcher = build_searcher(name, {}, only_rate(), OBJECTIVE, 1, num_samples=10)
    assert teach(searcher, points(), OBJECTIVE) == []
    assert RATE in searcher.suggest("first")


def test_what_was_told_shows_from_the_first_trial_on():
    told, fresh = [], []
    for seed in range(5):
        searcher = build_searcher("tpe", {}, only_rate(), OBJECTIVE, seed, num_samples=10)
        teach(searcher, points(), OBJECTIVE)
        told += [distance(searcher.suggest(str(number))) for number in range(3)]
        searcher = build_searcher("tpe", {}, only_rate(), OBJECTIVE, seed, num_samples=10)
        fresh += [distance(searcher.suggest(str(number))) for number in range(3)]
    assert sum(told) < 0.7 * sum(fresh)


def test_several_objectives_can_be_told():
    objectives = [("eval_value", "max"), ("time", "min")]
    searcher = build_searcher("nsga2", {}, only_rate(), objectives, 1)
    several = [EvaluatedPoint(point.params, (*point.values, 1.0)) for point in points()]
    assert teach(searcher, several, objectives) == []


@pytest.mark.parametrize(("mode", "best"), [("max", 1e-3), ("min", 1e-1)])
def test_else_the_best_are_run_first(mode, best):
    searcher = build_searcher("hyperopt", {}, only_rate(), OBJECTIVE, 1)
    for one in (searcher, None):
        first = teach(one, points(), [("eval_value", mode)])
        assert len(first) == 3
        assert distance(first[0]) == pytest.approx(distance({RATE: best}))
