"""A real MLflow server in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import psutil
from mlflow import MlflowClient
from mlflow.entities import Run

from tests.lifeline import Lifeline
from tests.processes import PATIENCE, end, free_port, wait_until

_WITHOUT_JOBS = {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
"""Its jobs are eight more processes, each of which imports MLflow."""


class MlflowServer:
    """Keeps its store and its port over a restart."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self._lifeline = Lifeline()
        self.uri = f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        """Start it, unless it runs."""
        if self._process is not None:
            return
        command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1"]
        command += ["--port", str(self._port), "--workers", "1"]
        command += ["--backend-store-uri", f"sqlite:///{self._folder}/mlflow.db"]
        command += ["--artifacts-destination", str(self._folder / "artifacts")]
        with (self._folder / "log.txt").open("ab") as log:
            self._process = subprocess.Popen(
                command,
                cwd=self._folder,
                env={**os.environ, **_WITHOUT_JOBS},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._lifeline.hold(self._process.pid)
        wait_until(self._answers, 90, "the MLflow server to answer")

    def kill(self) -> None:
        """End it with everything below it, without a chance to finish anything."""
        if self._process is None:
            return
        below = psutil.Process(self._process.pid).children(recursive=True)
        for process in [*below, self._process]:
            process.kill()
        self._lifeline.release(self._process.pid)
        self._process.wait(20 * PATIENCE)
        end(below)
        self._process = None

    def close(self) -> None:
        """Leave nothing behind."""
        self.kill()
        self._lifeline.close()

    def client(self) -> MlflowClient:
        return MlflowClient(self.uri)

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.uri}/health", timeout=2) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False


class RecordedRuns:
    """The runs of one sweep, as MLflow's own client reads them."""

    def __init__(self, client: MlflowClient, experiment: str) -> None:
        self.client = client
        found = client.get_experiment_by_name(experiment)
        runs = client.search_runs([found.experiment_id], max_results=5000)
        (self.parent,) = [run for run in runs if "mlflow.parentRunId" not in run.data.tags]
        self.children: dict[str, Run] = {
            run.info.run_name: run for run in runs if run is not self.parent
        }
        # No run is there twice, and none of another sweep.
        assert len(self.children) == len(runs) - 1
        for run in self.children.values():
            assert run.data.tags["mlflow.parentRunId"] == self.parent.info.run_id

    def history(self, trial: str, metric: str) -> list[tuple[int, float]]:
        """Return the points of a metric as (step, value)."""
        points = self.client.get_metric_history(self.children[trial].info.run_id, metric)
        return sorted((point.step, point.value) for point in points)

    def artifacts(self, run: Run, folder: Path) -> dict[str, bytes]:
        """Download a run's artifacts and return their contents by name."""
        self.client.download_artifacts(run.info.run_id, "", str(folder))
        return {
            str(file.relative_to(folder)): file.read_bytes()
            for file in folder.rglob("*")
            if file.is_file() and os.access(file, os.R_OK)
        }
