"""What a sweep learns from an earlier one."""

from __future__ import annotations

import math
import pickle
from dataclasses import replace
from typing import Any, ClassVar

import pytest
from ray import tune
from ray.tune.search.optuna import OptunaSearch

from ditk_ray import JobCfg
from ditk_ray.config.job_spec import check_job
from ditk_ray.config.space import build_space, when
from ditk_ray.errors import BadConfigError
from ditk_ray.record.record import TrialRecord, TrialState
from ditk_ray.search.searchers import build_searcher
from ditk_ray.sweep.search_setup import (
    EvaluatedPoint,
    build_search,
    evaluated_points,
    teach,
)
from tests.search.spaces import OBJECTIVE, RATE, distance, only_rate
from tests.trial import experiments


def row(value: Any, state: str = "succeeded", **others: Any) -> TrialRecord:
    values = {"params": {RATE: 1e-3}, "best_metrics": {"eval_value": value}} | others
    return TrialRecord("trial", state=TrialState(state), **values)


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
    found = evaluated_points(rows, OBJECTIVE, only_rate())
    assert [values for _, values in found] == [(1.0,), (2.0,)]


def test_several_objectives_come_from_the_same_evaluation():
    rows = [row(1.0, best_metrics={"eval_value": 1.0, "time": 3}), row(2.0)]
    objectives = [("eval_value", "max"), ("time", "min")]
    ((_, values),) = evaluated_points(rows, objectives, only_rate())
    assert values == (1.0, 3.0)


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
    rows = [row(1.0, params=params), row(2.0, params={"a": 0.5, "b": 1})]
    ((kept, values),) = evaluated_points(rows, OBJECTIVE, space, seed=1)
    assert (kept["a"], kept["b"], values) == (0.5, 1, (2.0,))
    assert 0 <= kept["c"] <= 1


def points() -> list[EvaluatedPoint]:
    rates = [10 ** -(1 + number / 3) for number in range(13)]
    return [({RATE: rate}, (-distance({RATE: rate}),)) for rate in rates]


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
    several = [(params, (*values, 1.0)) for params, values in points()]
    assert teach(searcher, several, objectives) == []


@pytest.mark.parametrize(("mode", "best"), [("max", 1e-3), ("min", 1e-1)])
def test_else_the_best_are_run_first(mode, best):
    searcher = build_searcher("hyperopt", {}, only_rate(), OBJECTIVE, 1)
    for one in (searcher, None):
        first = teach(one, points(), [("eval_value", mode)])
        assert len(first) == 3
        assert distance(first[0]) == pytest.approx(distance({RATE: best}))


class Searched(JobCfg):
    config = experiments.CARTPOLE
    space: ClassVar[Any] = {"policy.learn.learning_rate": tune.loguniform(1e-4, 1e-2)}


def test_a_searcher_is_not_combined_with_a_base_that_it_cannot_work_with(tmp_path):
    changes = {
        "searcher": "tpe",
        "scheduler": "resource_changing",
        "scheduler_opt": {"base": "pbt"},
    }
    with pytest.raises(BadConfigError, match="'pbt' changes parameters on the way"):
        build_search(check_job(Searched, changes), 0, tmp_path)


def test_a_searcher_object_of_a_sweep_that_goes_on_is_taken_as_it_was_kept(tmp_path):
    job = check_job(Searched, {"searcher": OptunaSearch()})
    first = build_search(job, 0, tmp_path)
    assert first.searcher is not None
    kept = replace(job, searcher=pickle.loads(pickle.dumps(job.searcher)))
    with pytest.raises(BadConfigError, match="has a metric or a space of its own already"):
        build_search(kept, 0, tmp_path)
    later = build_search(kept, 0, tmp_path, is_resumed=True)
    assert later.searcher is not None
    assert set(later.searcher.suggest("00000")) == {"policy.learn.learning_rate"}


@pytest.mark.parametrize("own_grid", [False, True])
def test_a_grid_learns_nothing_from_an_earlier_sweep(tmp_path, own_grid):
    changes: dict[str, Any] = {"warm_start": "earlier"}
    if own_grid:
        changes["space"] = {"policy.nstep": tune.grid_search([1, 3])}
    else:
        changes["searcher"] = "grid"
    with pytest.raises(BadConfigError, match="warm_start: a grid always runs in full"):
        build_search(check_job(Searched, changes), 0, tmp_path)
