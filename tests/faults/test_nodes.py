"""A sweep on several nodes, of which some are lost, and one does not see the storage."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from ditk_ray.execution.fork_client import SHARED_KEY
from ditk_ray.record.trial_folder import read_metrics
from tests.faults.chaos import run_chaos
from tests.faults.sound_sweep import attempts, require_sound
from tests.processes import PATIENCE, alive, processes_in, wait_until
from tests.trial import experiments

pytestmark = pytest.mark.ray

JOB = f"""
from ray import tune
from ditk_ray import JobCfg

class NodesJobCfg(JobCfg):
    config = {experiments.CARTPOLE!r}
    space = {{
        "policy.learn.learning_rate": tune.loguniform(1e-4, 1e-2),
        "env.stop_value": 10**9,
        "policy.eval.evaluator.eval_freq": 10,
    }}
    num_samples = 4
    max_env_step = 1000
"""


HELD = """
import time
from pathlib import Path

def is_saved(trial):
    return any(int(one.name) > 1 for one in trial.glob("checkpoints/[0-9]*"))

def train(config, seed, max_env_step):
    from ding.entry import serial_pipeline
    from ding.worker import SampleSerialCollector

    collect = SampleSerialCollector.collect

    def wait_and_collect(*args, **options):
        if not (SWEEP / "go").exists():
            time.sleep(1)  # checkpoints are as far apart, or more
            trial = SWEEP / Path.cwd().relative_to(SWEEP).parts[0]
            while is_saved(trial) and not (SWEEP / "go").exists():
                time.sleep(0.05)
        return collect(*args, **options)

    SampleSerialCollector.collect = wait_and_collect
    return serial_pipeline(config, seed, max_env_step=max_env_step)

class HeldJobCfg(NodesJobCfg):
    entry = train
    num_samples = 2
    max_env_step = 600
"""
"""The same, but that a trial trains on from its second checkpoint only when it is let go."""


def test_a_node_that_is_killed_costs_only_what_ran_on_it(cluster, driver, tmp_path):
    folder = tmp_path / "ditk_ray_results" / "nodes"
    held = HELD.replace("SWEEP", f"Path({str(folder)!r})")
    (tmp_path / "job.py").write_text(JOB + held)
    process = driver(
        *("tune", "--cfg_file", "job.py", "--cfg_class", "HeldJobCfg", "--name", "nodes"),
        *("--ray_address", cluster.address),
    )
    wait_until(
        lambda: len({one.parents[1] for one in folder.glob("*/checkpoints/[2-9]")}) == 2,
        150,
        "checkpoints on two nodes",
    )
    victim = next(node for node in cluster.nodes if node.actors())
    running = {one.cwd(): one for one in processes_in(folder)}
    assert len({path.split("/trial_")[1][:5] for path in running}) == 2, "each node has one of them"

    victim.kill()
    (folder / "go").touch()

    output, _ = process.communicate(timeout=250 * PATIENCE)
    assert process.returncode == 0, output
    record = require_sound(folder, 2)
    lost = [trial for trial in record.trials.values() if trial.failures]
    assert len(lost) == 1, "the other node's trial did not notice"
    assert [failure["kind"] for failure in lost[0].failures] == ["lost"]
    assert attempts(folder)[lost[0].id] == 2
    rows = read_metrics(folder / lost[0].id)
    again = next(row for row in rows if row["ditk_ray_attempt"] == 1)
    assert again["env_step"] > rows[0]["env_step"], "it goes on from its checkpoint"
    assert not any(map(alive, running.values()))
    cluster.nodes.remove(victim)
    cluster.add_node({"CPU": 1})


@pytest.mark.timeout(600 * PATIENCE)
@pytest.mark.parametrize(
    ("seed", "faults", "trials"),
    [(16, 2, 4), pytest.param(4, 4, 8, marks=pytest.mark.slow)],  # 16: driver and node are killed
)
def test_a_sweep_under_random_faults_loses_nothing_and_does_nothing_twice(
    cluster, warm, monkeypatch, tmp_path, seed, faults, trials
):
    monkeypatch.setenv(SHARED_KEY, warm.key)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "none")
    record, struck = run_chaos(tmp_path, cluster, seed=seed, faults=faults, trials=trials)
    assert struck == faults, "the sweep was over before all faults had happened"
    assert any(trial.attempt > 0 for trial in record.trials.values()), "no fault hit a trial"
    assert record.best() is not None


@pytest.mark.skipif(shutil.which("unshare") is None, reason="needs unshare")
def test_storage_that_a_node_does_not_see_is_found_before_the_first_trial(
    cluster, driver, tmp_path
):
    results = tmp_path / "only_here"
    results.mkdir()
    blind = ["unshare", "-m", "sh", "-c", f'mount -t tmpfs none "{results}" && exec "$0" "$@"']
    if subprocess.run([*blind, "true"], capture_output=True).returncode:
        pytest.skip("a mount of its own is not permitted here")
    node = cluster.add_node({"CPU": 1}, blind)
    try:
        (tmp_path / "job.py").write_text(JOB)
        process = driver(
            *("tune", "--cfg_file", "job.py", "--ray_address", cluster.address),
            *("--storage_path", str(results)),
        )
        output, _ = process.communicate(timeout=120 * PATIENCE)
        assert process.returncode == 2
        assert "is not seen by" in output
        assert "a folder that all nodes share" in output
        assert list(results.iterdir()) == []
    finally:
        node.kill()
        cluster.nodes.remove(node)
