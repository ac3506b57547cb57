from __future__ import annotations

import subprocess
import sys
from typing import Any, ClassVar

import pytest
from mlflow import MlflowClient
from ray import tune

from ditk_ray import JobCfg
from ditk_ray.tracking.mlflow_runs import EXPERIMENT, MlflowRuns
from tests.processes import can_connect, free_port, wait_until
from tests.trial import experiments

pytestmark = pytest.mark.ray


class Recorded(JobCfg):
    config = experiments.CARTPOLE
    space: ClassVar[Any] = {"policy.learn.learning_rate": tune.grid_search([0.001, 0.002])}
    max_env_step = 200


@pytest.fixture
def mlflow_uri(tmp_path):
    """Start a real MLflow server on a SQLite store."""
    port = free_port()
    command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--workers", "1"]
    command += ["--port", str(port), "--backend-store-uri", f"sqlite:///{tmp_path}/mlflow.db"]
    server = subprocess.Popen(
        command,
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    import psutil

    from tests.processes import end

    try:
        wait_until(lambda: can_connect(port), 90, "the MLflow server to answer")
        yield f"http://127.0.0.1:{port}"
    finally:
        below = psutil.Process(server.pid).children(recursive=True)
        server.terminate()
        server.wait(20)
        end(below)


def test_a_sweep_is_a_parent_run_and_each_trial_a_child_of_it(sweep, mlflow_uri):
    from ditk_ray.config.space import build_space

    outcome = sweep(Recorded, [MlflowRuns(mlflow_uri, build_space(Recorded.space))])
    client = MlflowClient(mlflow_uri)
    experiment = client.get_experiment_by_name(EXPERIMENT)
    runs = client.search_runs([experiment.experiment_id])
    (parent,) = [run for run in runs if "mlflow.parentRunId" not in run.data.tags]
    children = [run for run in runs if run is not parent]
    assert parent.info.run_name == "Recorded"
    assert parent.info.status == "FINISHED"
    assert {run.info.run_name for run in children} == set(outcome.record.trials)
    for run in children:
        trial = outcome.record.trials[run.info.run_name]
        assert run.data.tags["mlflow.parentRunId"] == parent.info.run_id
        assert run.data.tags["ditk_ray.state"] == "succeeded"
        assert run.data.params == {k: str(v) for k, v in trial.params.items()}
        history = client.get_metric_history(run.info.run_id, "eval_value")
        assert len(history) == trial.reports
        assert history[-1].step == trial.metrics["env_step"]


def test_a_server_that_is_away_does_not_harm_the_sweep(sweep, caplog, monkeypatch):
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    from ditk_ray.config.space import build_space

    away = MlflowRuns(f"http://127.0.0.1:{free_port()}", build_space(Recorded.space))
    outcome = sweep(Recorded, [away])
    assert outcome.succeeded
    assert "does not record" in caplog.text
