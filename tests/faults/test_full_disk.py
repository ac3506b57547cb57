"""A disk that is full for a while costs time, and nothing else."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

import pytest

from tests.faults.sound_sweep import require_sound
from tests.processes import PATIENCE, alive, processes_in, wait_until
from tests.trial import experiments

pytestmark = pytest.mark.ray

JOB = f"""
from ray import tune
from ditk_ray import JobCfg

class FullDiskJobCfg(JobCfg):
    config = {experiments.CARTPOLE!r}
    space = {{
        "policy.learn.learning_rate": tune.loguniform(1e-3, 1e-2),
        "env.stop_value": 10**9,
        "policy.eval.evaluator.eval_freq": 10,
    }}
    num_samples = 3
    max_env_step = 800
"""


def fill(place: Path) -> Path:
    """Leave no room on a file system."""
    ballast = place / "ballast"
    with ballast.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(os.urandom(4096))
        except OSError:
            return ballast


def test_a_sweep_survives_a_disk_that_is_full_for_a_while(
    small_disk, driver, tmp_path, ray_address
):
    (tmp_path / "job.py").write_text(JOB)
    folder = small_disk / "full"
    broken: list[str] = []
    done = threading.Event()

    def read() -> None:
        while not done.wait(0.02):
            if (folder / "sweep.json").is_file():
                try:
                    json.loads((folder / "sweep.json").read_text())
                except ValueError as error:
                    broken.append(str(error))

    reader = threading.Thread(target=read)
    reader.start()
    try:
        process = driver(
            *("tune", "--cfg_file", "job.py", "--name", "full", "--mlflow_uri", "none"),
            *("--storage_path", str(small_disk), "--ray_address", ray_address),
        )
        wait_until(lambda: list(folder.glob("*/checkpoints/1")), 120, "a checkpoint")
        training = wait_until(lambda: processes_in(folder), 60, "a trial that trains")
        ballast = fill(small_disk)
        wait_until(lambda: not any(map(alive, training)), 60, "the trials to want room")
        assert process.poll() is None, "the driver goes on"
        ballast.unlink()
        output, _ = process.communicate(timeout=200 * PATIENCE)
    finally:
        done.set()
        reader.join()
    assert process.returncode == 0, output
    assert broken == []
    record = require_sound(folder, 3)
    assert {trial.state for trial in record.trials.values()} == {"succeeded"}, output
    assert processes_in(folder) == []
