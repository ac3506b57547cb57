from __future__ import annotations

import pytest

from ditk_ray.config.job_files import list_jobs, load_job

pytestmark = pytest.mark.ray

SHIPPED = {"CartpoleDQNJobCfg": 500, "CartpolePPOJobCfg": 5000, "PendulumSACJobCfg": 2500}


def test_these_are_the_shipped_jobs():
    assert {entry.name for entry in list_jobs()} == set(SHIPPED)


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_job_trains_for_a_few_evaluations(name, sweep):
    job = load_job(name, changes={"num_samples": 1, "max_env_step": SHIPPED[name]})
    (trial,) = sweep(job).record.trials.values()
    assert trial.error is None
    assert trial.state == "succeeded"
    assert trial.reports >= 3
    assert trial.params
