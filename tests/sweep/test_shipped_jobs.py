from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import pytest

from ditk_ray.config.config_file import EntryCall
from ditk_ray.config.engine_config import load_engine_config
from ditk_ray.config.job_files import list_jobs, load_job
from ditk_ray.config.space import build_space
from ditk_ray.record.trial_folder import read_metrics
from ditk_ray.search.budget import derive_budget
from ditk_ray.trial.inspection import inspect_experiment
from ditk_ray.trial.reports import ENDED

pytestmark = pytest.mark.ray

SHIPPED = {"CartpoleDQNJobCfg": 600, "CartpolePPOJobCfg": 11_000, "PendulumSACJobCfg": 4000}
"""Each with the steps in which its trials are evaluated a few times."""


def test_these_are_the_shipped_jobs():
    assert {entry.name for entry in list_jobs()} == set(SHIPPED)


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_job_trains_and_is_evaluated_as_often_as_its_config_tells(name, sweep, warm):
    job = load_job(name, changes={"num_samples": 1, "max_env_step": SHIPPED[name]})
    job = replace(job, config=job.config.overlaid({"env.stop_value": 10**9}))
    (trial,) = sweep(job, seed=1).record.trials.values()
    assert trial.error is None
    assert trial.state == "succeeded"
    assert trial.reports >= 3
    assert trial.params

    steps = [row["env_step"] for row in read_metrics(Path(trial.dir)) if ENDED not in row]
    gaps = [b - a for a, b in itertools.pairwise(steps)]
    assert len(gaps) >= 2
    call = EntryCall(job.entry, {"seed": 0, **job.limits})
    trained = load_engine_config(Path(trial.dir) / "config.py")
    defaults, _ = inspect_experiment(warm, trained, call)
    derived = derive_budget(defaults, build_space({}), SHIPPED[name])
    # PPO's collector waits for the ends of episodes, whose steps count, too.
    assert 0.7 <= (derived.eval_interval or 0) / (sum(gaps) / len(gaps)) <= 1.1
