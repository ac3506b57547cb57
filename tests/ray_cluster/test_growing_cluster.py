"""A sweep on a cluster whose nodes come only when they are wanted."""

from __future__ import annotations

import json

import pytest

from tests.processes import PATIENCE, wait_until
from tests.ray_cluster.ray_clusters import RayCluster
from tests.trial import experiments

pytestmark = [pytest.mark.ray, pytest.mark.timeout(500 * PATIENCE)]

GROUPS = json.dumps([{"name": "small", "min": 0, "max": 2, "cpu": 1}])
JOB = f"""
from ray import tune
from ditk_ray import JobCfg

def train(config):
    return {{"eval_value": 1.0}}

class GrowingJobCfg(JobCfg):
    config = {experiments.CARTPOLE!r}
    entry = train
    space = {{"policy.learn.learning_rate": tune.loguniform(1e-4, 1e-2)}}
    num_samples = 2
"""


def test_a_sweep_waits_for_the_nodes_that_may_come_and_runs_on_them(driver, tmp_path):
    (tmp_path / "job.py").write_text(JOB)
    with RayCluster({"CPU": 0}) as cluster:
        process = driver(
            *("tune", "--cfg_file", "job.py", "--ray_address", cluster.address),
            *("--name", "grown", "--mlflow_uri", "none"),
            DITK_RAY_WORKER_GROUPS=GROUPS,
        )
        record = tmp_path / "ditk_ray_results" / "grown" / "sweep.json"
        wait_until(record.exists, 150, "the sweep to begin, with no node for it")
        assert process.poll() is None
        assert json.loads(record.read_text())["job"]["max_concurrent"] == 2
        cluster.add_node({"CPU": 1})
        output, _ = process.communicate(timeout=200 * PATIENCE)
        assert process.returncode == 0, output
        assert "2 succeeded" in output
