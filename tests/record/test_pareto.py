"""The trials that no other beats in every objective."""

from __future__ import annotations

import math
import random
import time
from typing import Any

import pytest

from ditk_ray.config.terms import Objective
from ditk_ray.record.record import SweepRecord, TrialRecord, non_dominated
from tests.processes import PATIENCE

TIME = Objective("time", "min")


def sweep(*trials: dict[str, Any], more: tuple[Objective, ...] = (TIME,)) -> SweepRecord:
    """Return a sweep for a high `score`, with one report for each of its trials."""
    record = SweepRecord("s", "score", "max", more_objectives=more)
    for number, metrics in enumerate(trials):
        trial = record.trials[str(number)] = TrialRecord(str(number), {})
        record.add_report(trial, metrics)
    return record


def ids(record: SweepRecord) -> list[str]:
    return [trial.id for trial in record.pareto_set()]


def test_what_another_beats_in_both_is_left_out_and_the_best_comes_first():
    pairs = [(1, 1), (2, 5), (3, 4), (0, 9)]
    record = sweep(*[{"score": score, "time": time} for score, time in pairs])
    assert ids(record) == ["2", "0"]


def test_what_is_worse_in_one_and_equal_in_the_other_is_left_out():
    assert ids(sweep({"score": 1, "time": 1}, {"score": 1, "time": 2})) == ["0"]
    assert ids(sweep({"score": 1, "time": 1}, {"score": 2, "time": 1})) == ["1"]


def test_of_equals_all_are_kept():
    assert ids(sweep(*[{"score": 1, "time": 1}] * 3)) == ["0", "1", "2"]
    third = (TIME, Objective("size", "min"))
    assert ids(sweep(*[{"score": 1, "time": 1, "size": 1}] * 3, more=third)) == ["0", "1", "2"]


@pytest.mark.parametrize("value", [math.nan, math.inf, None, "high"])
def test_what_has_no_number_in_one_of_them_is_left_out(value):
    record = sweep({"score": 5, "time": value}, {"score": 1, "time": 1}, {"score": 9}, {})
    assert ids(record) == ["1"]


def test_a_trial_counts_by_its_best_evaluation_by_the_first_objective():
    record = sweep({"score": 5, "time": 5})
    record.add_report(record.trials["0"], {"score": 4, "time": 1})
    record.trials["1"] = TrialRecord("1", {})
    record.add_report(record.trials["1"], {"score": 4, "time": 2})
    assert ids(record) == ["0", "1"]


def test_with_one_objective_there_is_no_set_but_a_best():
    assert ids(sweep({"score": 1}, {"score": 3}, {"score": 3}, more=())) == []


def test_nothing_comes_of_nothing():
    assert ids(sweep()) == []
    assert non_dominated([]) == []


def by_definition(points: list[tuple[float, ...]]) -> set[int]:
    def dominates(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
        pairs = list(zip(one, other, strict=True))
        return all(a <= b for a, b in pairs) and any(a < b for a, b in pairs)

    return {
        place
        for place, point in enumerate(points)
        if not any(dominates(other, point) for other in points)
    }


@pytest.mark.parametrize("objectives", [1, 2, 3, 4])
def test_the_set_is_as_it_is_defined(objectives):
    draw = random.Random(objectives)
    for _ in range(60):
        points = [
            tuple(float(draw.randint(0, 6)) for _ in range(objectives))
            for _ in range(draw.randint(1, 40))
        ]
        kept = non_dominated(points)
        assert set(kept) == by_definition(points)
        assert [points[place] for place in kept] == sorted(points[place] for place in kept)


@pytest.mark.parametrize(("objectives", "trials"), [(2, 20_000), (3, 3_000)])
def test_thousands_of_trials_take_no_time_to_speak_of(objectives, trials):
    draw = random.Random(1)
    points = []
    for _ in range(trials):  # nearly all on the front, which is the hardest
        place = [draw.random() for _ in range(objectives - 1)]
        points.append((*place, -sum(place)))
    begun = time.perf_counter()
    kept = non_dominated(points)
    assert time.perf_counter() - begun < 2 * PATIENCE
    assert len(kept) > trials / 2
