"""What a sweep is driven by, made of what its job says."""

from __future__ import annotations

import pickle
from typing import Any, ClassVar

import pytest
from ray import tune
from ray.tune.search.optuna import OptunaSearch

from ditk_ray import JobCfg
from ditk_ray.config.job_spec import check_job
from ditk_ray.errors import BadConfigError
from ditk_ray.sweep.drivers import build_search
from tests.trial import experiments


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
    kept = job.model_copy(update={"searcher": pickle.loads(pickle.dumps(job.searcher))})
    with pytest.raises(BadConfigError, match="has a metric or a space of its own already"):
        build_search(kept, 0, tmp_path)
    later = build_search(kept, 0, tmp_path, goes_on=True)
    assert later.searcher is not None
    assert set(later.searcher.suggest("00000")) == {"policy.learn.learning_rate"}


@pytest.mark.parametrize("own_grid", [False, True])
def test_a_grid_learns_nothing_from_an_earlier_sweep(tmp_path, own_grid):
    changes: dict[str, Any] = {"warm_start": "earlier"}
    if own_grid:
        changes["space"] = {"policy.nstep": tune.grid_search([1, 3])}
    else:
        changes["searcher"] = "grid"
    with pytest.raises(BadConfigError, match="warm_start: a grid is gone through whole"):
        build_search(check_job(Searched, changes), 0, tmp_path)
