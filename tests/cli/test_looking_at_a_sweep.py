"""The commands that look at a sweep, on a real one, while it runs and after it."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ditk_ray.execution.fork_client import SHARED_KEY
from tests.inline import DITK_RAY, run_inline
from tests.processes import PATIENCE, processes_in, wait_until
from tests.trial.experiments import CARTPOLE

pytestmark = pytest.mark.ray

JOB = f"""
from ray import tune
from ditk_ray import JobCfg

class QuickJobCfg(JobCfg):
    config = {CARTPOLE!r}
    space = {{"policy.learn.learning_rate": tune.loguniform(1e-4, 1e-2)}}
    num_samples = 3
    max_env_step = 200
"""


@dataclass
class Looked:
    """A sweep that has ended, and what was seen of it while it ran."""

    place: Path
    folder: Path
    followed: str
    watched: str
    during: dict[str, object]

    def run(self, *arguments: str) -> str:
        run = run_inline(arguments, self.place, os.environ)
        assert run.returncode == 0, run.stderr
        return run.stdout


@pytest.fixture(scope="module")
def looked(
    tmp_path_factory: pytest.TempPathFactory, ray_address: str, warm: Any
) -> Iterator[Looked]:
    place = tmp_path_factory.mktemp("looked")
    (place / "job.py").write_text(JOB)
    folder = place / "ditk_ray_results/live"
    environment = os.environ | {"RAY_ADDRESS": ray_address, SHARED_KEY: warm.key}

    def start(*arguments: str, err: int = subprocess.DEVNULL) -> subprocess.Popen[str]:
        command = [DITK_RAY, *arguments]
        return subprocess.Popen(
            command, cwd=place, env=environment, stdout=subprocess.PIPE, stderr=err, text=True
        )

    sweep = start("tune", "--cfg_file", "job.py", "--name", "live")
    wait_until((folder / "sweep.json").exists, 120, "the sweep to start")
    follower = start("logs", "live", "2", "--follow")  # the last: it is not there yet
    watcher = start("status", "live", "--watch", "--interval", "0.2")
    status = start("status", "live", "--format", "json")
    during = json.loads(status.communicate(timeout=60 * PATIENCE)[0])
    seen = [
        process.communicate(timeout=200 * PATIENCE)[0] for process in (follower, watcher, sweep)
    ]
    assert [process.returncode for process in (follower, watcher, sweep)] == [0, 0, 0]
    yield Looked(place, folder, seen[0], seen[1], during)
    assert processes_in(place) == []


def test_while_it_runs_it_is_alive(looked):
    assert (looked.during["status"], looked.during["is_alive"]) == ("running", True)
    assert looked.during["trials_total"] == 3


def test_the_log_was_followed_from_before_its_trial_was_made_to_its_end(looked):
    log = looked.folder / "trial_00002/attempt_0/log.txt"
    assert looked.followed == log.read_text()


def test_the_sweep_was_watched_to_its_end(looked):
    assert looked.watched.startswith("live: running; ")
    assert "succeeded; best: trial_0000" in looked.watched
    assert "live: finished in" in looked.watched
    assert "fully recorded in MLflow" in looked.watched


def test_afterwards_all_of_it_is_in_mlflow(looked):
    status = json.loads(looked.run("status", "live", "--format", "json"))
    assert (status["status"], status["trials_done"]) == ("finished", 3)
    assert status["mlflow"]["is_complete"] is True
    assert "fully recorded in MLflow" in looked.run("status", "live")


def test_the_best_trial_is_that_of_the_record_with_files_that_are_there(looked):
    best = json.loads(looked.run("best", "live", "--format", "json"))
    record = json.loads((looked.folder / "sweep.json").read_text())
    assert (best["id"], best["score"]) == (record["best"]["id"], record["best"]["score"])
    files = [best["files"]["config"], best["files"]["metrics"]]
    files += [*best["files"]["results"], *best["files"]["checkpoints"]]
    assert len(files) == 4
    assert all(Path(file).is_file() for file in files)


def test_the_report_can_be_written_again(looked):
    assert looked.run("report", "live") == "ditk_ray_results/live/report.html\n"
