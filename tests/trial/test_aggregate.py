from __future__ import annotations

import math

import numpy as np
import pytest

from ditk_ray.trial.aggregate import (
    aggregate,
    aggregate_rows,
    bootstrap_interval,
    iqm_weights,
)


def rows(*scores: float, metric: str = "eval_value") -> dict[int, dict[str, float]]:
    return {seed: {metric: score, "env_step": 10 * seed} for seed, score in enumerate(scores)}


@pytest.mark.parametrize(
    ("how", "mode", "expected"),
    [
        ("mean", "max", 27.5),
        ("median", "max", 6.5),
        ("worst", "max", 1.0),
        ("worst", "min", 96.0),
        ("iqm", "max", 6.5),
    ],
)
def test_each_aggregate_says_what_its_name_does(how, mode, expected):
    assert aggregate(np.array([96.0, 10.0, 1.0, 3.0]), how, mode) == expected


def test_an_outlier_does_not_move_the_interquartile_mean():
    scores = [10.0, 11.0, 12.0, 13.0, 14.0, 15.0, 16.0, 17.0]
    spoiled = [-1000.0, *scores[1:-1], 1000.0]
    assert aggregate(np.array(spoiled), "iqm") == aggregate(np.array(scores), "iqm") == 13.5


@pytest.mark.parametrize(
    ("count", "weights"),
    [
        (1, [1]),
        (2, [1 / 2, 1 / 2]),
        (3, [1 / 6, 2 / 3, 1 / 6]),
        (4, [0, 1 / 2, 1 / 2, 0]),
        (5, [0, 0.3, 0.4, 0.3, 0]),
    ],
)
def test_values_on_a_quartile_count_by_as_much_as_lies_inside(count, weights):
    assert iqm_weights(count) == pytest.approx(weights)


def test_an_unknown_aggregate_is_refused():
    with pytest.raises(ValueError, match="'best'"):
        aggregate(np.array([1.0]), "best")


@pytest.mark.parametrize("how", ["mean", "median", "worst", "iqm"])
def test_a_seed_without_a_number_leaves_no_score(how):
    assert math.isnan(aggregate(np.array([1.0, math.nan, 3.0]), how))
    metrics = aggregate_rows(rows(1.0, math.nan, 3.0), "eval_value", how=how)
    assert math.isnan(metrics["eval_value"])


def test_the_interval_holds_the_score_and_is_the_same_each_time():
    scores = np.random.default_rng(1).normal(100, 10, 10)
    low, high = bootstrap_interval(scores, "iqm")
    assert low < aggregate(scores, "iqm") < high
    assert 2 < high - low < 30
    assert (low, high) == bootstrap_interval(scores, "iqm")


def test_the_interval_of_a_mean_is_about_as_wide_as_theory_says():
    scores = np.random.default_rng(2).normal(0, 1, 200)
    low, high = bootstrap_interval(scores, "mean")
    assert high - low == pytest.approx(2 * 1.96 / math.sqrt(200), rel=0.2)


def test_seeds_that_agree_leave_no_interval():
    assert bootstrap_interval(np.array([5.0, 5.0, 5.0]), "iqm") == (5.0, 5.0)


def test_the_metric_is_aggregated_and_all_else_is_a_mean():
    metrics = aggregate_rows(rows(1.0, 2.0, 9.0), "eval_value", how="median")
    assert metrics["eval_value"] == 2.0
    assert metrics["env_step"] == 10.0
    assert [metrics[f"eval_value_seed_{seed}"] for seed in range(3)] == [1.0, 2.0, 9.0]
    assert metrics["eval_value_low"] <= 2.0 <= metrics["eval_value_high"]


def test_another_metric_has_its_seeds_and_its_interval_and_the_return_is_aggregated_too():
    given = {
        1: {"eval_value": 10.0, "win_rate": 0.5},
        2: {"eval_value": 20.0, "win_rate": 0.7, "seen_by_one": 3.0},
    }
    metrics = aggregate_rows(given, "win_rate", mode="min", how="worst")
    assert (metrics["win_rate"], metrics["eval_value"]) == (0.7, 10.0)
    assert (metrics["win_rate_seed_1"], metrics["eval_value_seed_2"]) == (0.5, 20.0)
    assert {"win_rate_low", "win_rate_high"} <= set(metrics)
    assert "seen_by_one" not in metrics


def test_a_single_seed_is_told_as_it_is():
    assert aggregate_rows({4: {"eval_value": 1.0, "name": "x"}}, "eval_value") == {
        "eval_value": 1.0,
        "name": "x",
    }
