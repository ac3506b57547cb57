"""Real sweeps, recorded on a real MLflow server and read back by MLflow's own client."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Set
from pathlib import Path
from typing import Any, ClassVar

import pytest
from ray import tune
from ray.tune.schedulers import AsyncHyperBandScheduler

from ditk_ray import JobCfg
from ditk_ray.config.space import build_space
from ditk_ray.execution.scripted import scripted
from ditk_ray.record.record import SweepRecord, SweepStatus, TrialState
from ditk_ray.sweep.observer import SweepObserver
from ditk_ray.sweep.replay import read_evaluations
from ditk_ray.tracking.delivery import sweep_artifacts, trial_artifacts
from ditk_ray.tracking.delivery_process import sync
from ditk_ray.tracking.recorder import Recorder, TrackingOptions
from ditk_ray.tracking.recording import read_state
from tests.mlflow_server import MlflowServer, RecordedRuns
from tests.processes import PATIENCE, wait_until
from tests.trial import experiments

pytestmark = [pytest.mark.ray, pytest.mark.mlflow]


class Recorded(JobCfg):
    config = experiments.CARTPOLE
    space: ClassVar[Any] = {"policy.learn.learning_rate": tune.grid_search([0.001, 0.002])}
    max_env_step = 300


FILES = {"config.py", "result.pkl", "result.json", "attempt_0/log.txt"}
"""What a trial leaves that really trained."""


def assert_complete(
    runs: RecordedRuns, outcome: Any, folder: Path, files: Set[str] = FILES
) -> None:
    """Compare all that the store has with all that is on disk, which has to include `files`."""
    record = outcome.record
    assert set(runs.children) == set(record.trials)
    for name, run in runs.children.items():
        trial = record.trials[name]
        assert run.data.tags["ditk_ray.state"] == trial.state
        evaluations = read_evaluations(trial)
        for metric in ("eval_value", "eval_value_std", "train_iter"):
            told = sorted((row["env_step"], row[metric]) for row in evaluations)
            assert runs.history(name, metric) == told
        on_disk = {
            str(item.relative_to(trial.dir)): item.read_bytes()
            for item in trial_artifacts(Path(trial.dir))
            if item.is_file()  # only some trials have parameters that were changed
        }
        kept = runs.artifacts(run, folder / name)
        assert files <= set(on_disk)
        assert {key: kept[key] for key in on_disk} == on_disk
        if "result.json" in files:
            assert json.loads(kept["result.json"]) == trial.result
    kept = runs.artifacts(runs.parent, folder / "parent")
    names = {str(item.relative_to(outcome.folder)) for item in sweep_artifacts(outcome.folder)}
    assert {"sweep.json", "best_config.py", "report.html", "provenance/provenance.json"} <= names
    for name in names:
        assert kept[name] == (outcome.folder / name).read_bytes()


def test_a_recorded_sweep_is_all_there_and_identical_to_what_is_on_disk(
    sweep, mlflow_server: MlflowServer, tmp_path
):
    outcome = sweep(Recorded, mlflow_uri=mlflow_server.uri, mlflow_experiment="complete")

    runs = RecordedRuns(mlflow_server.client(), "complete")
    assert_complete(runs, outcome, tmp_path / "downloaded")
    assert runs.parent.info.run_name == "Recorded"
    assert runs.parent.info.status == "FINISHED"
    best = outcome.record.best()
    assert best is not None
    assert runs.parent.data.tags["ditk_ray.best_trial"] == best.id
    assert runs.parent.data.metrics["best_eval_value"] == outcome.record.score(best)
    checkpoint = runs.artifacts(runs.children[best.id], tmp_path / "best")
    assert len(checkpoint["checkpoint/ckpt_best.pth.tar"]) > 10_000
    for run in runs.children.values():
        drawn = outcome.record.trials[run.info.run_name].params
        assert run.data.params == {key: str(value) for key, value in drawn.items()}
        assert run.data.tags["ditk_ray.seed"] == "0"
        assert run.data.tags["ditk_ray.node"]


def climbing_until(released: str) -> Any:
    """Return an entry that evaluates seven times, and once more when there is such a file."""

    @scripted
    def climb(config: Any, seed: int = 0) -> Iterator[dict[str, float]]:
        end = time.monotonic() + 100 * PATIENCE
        for step in range(1, 9):
            while step == 8 and not Path(released).exists() and time.monotonic() < end:
                time.sleep(0.05)
            value = step * config.policy.learn.learning_rate
            yield {"eval_value": value, "eval_value_std": 0.5, "train_iter": step, "env_step": step}

    return climb


def test_a_server_that_is_killed_and_comes_back_changes_nothing_of_the_sweep(
    sweep, mlflow_server: MlflowServer, tmp_path
):
    class Longer(Recorded):
        entry = climbing_until(str(tmp_path / "released"))
        max_env_step = None
        scheduler = AsyncHyperBandScheduler("env_step", grace_period=10_000, max_t=20_000)

    folder = tmp_path / "results/disturbed"

    def disturb() -> None:
        uri = mlflow_server.uri
        try:
            wait_until(lambda: read_state(folder, uri).runs, 60, "the first delivery")
            mlflow_server.kill()
            wait_until(lambda: read_state(folder, uri).error, 60, "a delivery that fails")
        finally:
            mlflow_server.start()
            (tmp_path / "released").touch()

    trouble = threading.Thread(target=disturb)
    trouble.start()
    outcome = sweep(
        Longer, name="disturbed", mlflow_uri=mlflow_server.uri, mlflow_experiment="trouble"
    )
    trouble.join()
    sync(outcome.folder)  # should the server have come back too late

    runs = RecordedRuns(mlflow_server.client(), "trouble")
    assert runs.parent.info.status == "FINISHED"
    assert runs.parent.data.params["scheduler.name"] == "AsyncHyperBandScheduler"
    assert runs.parent.data.params["scheduler.settings.max_t"] == "20000"
    assert_complete(runs, outcome, tmp_path / "downloaded", {"config.py", "metrics.jsonl"})
    for trial in outcome.record.trials.values():
        rate = trial.params["policy.learn.learning_rate"]
        expected = [(step, step * rate) for step in range(1, 9)]
        assert runs.history(trial.id, "eval_value") == expected


class FailsOnce(tune.Trainable):
    """Simulates a trial: three reports, and a failure of its first attempt."""

    def setup(self, config: dict[str, Any]) -> None:
        self.marker = Path(config["folder"]) / self.trial_name

    def step(self) -> dict[str, Any]:
        if self.iteration == 1 and not self.marker.exists():
            self.marker.touch()
            raise RuntimeError("the first time")
        return {
            "eval_value": self.iteration,
            "env_step": self.iteration,
            "done": self.iteration == 2,
        }

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        pass

    def load_checkpoint(self, checkpoint: Any) -> None:
        pass


def test_a_trial_that_tune_tries_again_goes_on_in_its_own_run(
    ray_address, mlflow_server: MlflowServer, tmp_path
):
    import ray

    folder = tmp_path / "retried"
    folder.mkdir()
    record = SweepRecord("retried", "eval_value", "max")
    recorder = Recorder(folder, TrackingOptions(mlflow_server.uri, "retried"))
    space = build_space({"folder": tune.choice([str(tmp_path)])})
    observer = SweepObserver(record, folder, space, [recorder])
    with ray.init(ray_address, log_to_driver=False):
        observer.begin()
        tune.Tuner(
            FailsOnce,
            param_space=space.tune_space(),
            tune_config=tune.TuneConfig(metric="eval_value", mode="max"),
            run_config=tune.RunConfig(
                storage_path=str(folder),
                callbacks=[observer],
                failure_config=tune.FailureConfig(max_failures=1),
                verbose=0,
            ),
        ).fit()
        observer.settle(SweepStatus.FINISHED)
        observer.end()

    (trial,) = record.trials.values()
    assert trial.state is TrialState.STOPPED
    runs = RecordedRuns(mlflow_server.client(), "retried")
    (run,) = runs.children.values()
    assert run.info.status == "FINISHED"
    assert [step for step, _ in runs.history(trial.id, "eval_value")] == [0, 1, 2]
