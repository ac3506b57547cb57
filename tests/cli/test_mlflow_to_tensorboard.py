"""`ditk-ray mlflow-to-tensorboard`, as a user runs it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from mlflow import MlflowClient
from mlflow.entities import Metric
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from tests.processes import PATIENCE, free_port, wait_until

pytestmark = pytest.mark.mlflow

COMMAND = "mlflow-to-tensorboard"


@pytest.fixture
def store(tmp_path):
    """A store in the results' folder with an experiment `walks` of three runs."""
    results = tmp_path / "ditk_ray_results"
    results.mkdir()
    uri = f"sqlite:///{results}/mlflow.db"
    client = MlflowClient(uri)
    experiment = client.create_experiment("walks")
    for number in range(3):
        run = client.create_run(experiment, run_name=f"walk_{number}")
        metrics = [Metric("eval_value", step * number, step, step) for step in range(10)]
        client.log_batch(run.info.run_id, metrics)
        client.set_terminated(run.info.run_id)
    return uri


def values(folder: Path) -> list[float]:
    read = EventAccumulator(str(folder), size_guidance={"scalars": 0}).Reload()
    return [item.value for item in read.Scalars("eval_value")]


def test_it_exports_prints_a_summary_and_does_nothing_twice(cli, store, tmp_path):
    arguments = [COMMAND, "--uri", store, "--experiment-name", "walks", "--download-dir", "tb"]

    first = cli(*arguments)

    assert first.returncode == 0, first.stderr
    assert first.stdout.splitlines() == [
        "walks: 3 runs with 30 points: 3 written, 0 were complete already, 0 failed",
        "look at them with: tensorboard --logdir tb",
    ]
    (folder,) = (tmp_path / "tb").glob("walk_2_*")
    assert values(folder) == [2.0 * step for step in range(10)]
    assert "0 written, 3 were complete already" in cli(*arguments).stdout


def test_without_a_uri_it_reads_the_store_in_the_results_folder_and_prints_json(
    cli, store, tmp_path, monkeypatch
):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    shown = cli(COMMAND, "--experiment_name=walks", "--download_dir=tb", "--format=json")

    assert shown.returncode == 0, shown.stderr
    summary = json.loads(shown.stdout)
    assert summary["counts"] == {"written": 3}
    assert summary["points"] == 30
    assert {run["name"] for run in summary["runs"]} == {"walk_0", "walk_1", "walk_2"}
    for run in summary["runs"]:
        assert len(values(tmp_path / run["folder"])) == 10


def test_a_run_that_cannot_be_written_is_named_and_the_exit_code_is_1(cli, store, tmp_path):
    client = MlflowClient(store)
    experiment = client.get_experiment_by_name("walks").experiment_id
    (bad,) = client.search_runs([experiment], "attributes.run_name = 'walk_1'")
    (tmp_path / "tb").mkdir()
    (tmp_path / "tb" / f"walk_1_{bad.info.run_id[:8]}").write_text("a file, not a folder")

    shown = cli(COMMAND, "--uri", store, "--experiment_name", "walks", "--download_dir", "tb")

    assert shown.returncode == 1
    failed, summary, _ = shown.stdout.splitlines()
    assert failed.startswith(f"walk_1 ({bad.info.run_id}) failed: ")
    assert "2 written, 0 were complete already, 1 failed" in summary


def test_mistakes_are_explained_in_a_line_or_two(cli, store, tmp_path):
    MlflowClient(store).create_experiment("empty")

    typo = cli(COMMAND, "--uri", store, "--experiment_name", "wlaks", "--download_dir", "tb")
    nothing = cli(COMMAND, "--uri", store, "--experiment_name", "empty", "--download_dir", "tb")

    assert typo.returncode == 2
    assert typo.stderr.splitlines() == [
        "error: --experiment_name wlaks: there is no such experiment",
        "    did you mean 'walks'?",
    ]
    assert nothing.returncode == 1
    assert nothing.stderr == "error: experiment 'empty' has no runs: nothing to export\n"
    assert not (tmp_path / "tb").exists()


def test_a_server_that_is_away_is_one_line(cli):
    uri = f"http://127.0.0.1:{free_port()}"
    shown = cli(COMMAND, "--uri", uri, "--experiment_name", "x", "--download_dir", "tb")
    assert shown.returncode == 1
    (line,) = shown.stderr.splitlines()
    assert line.startswith(f"error: no MLflow server answers at {uri}: ")


def test_after_ctrl_c_the_same_command_goes_on(cli, store, tmp_path):
    client = MlflowClient(store)
    experiment = client.get_experiment_by_name("walks").experiment_id
    for _ in range(60):
        run = client.create_run(experiment)
        client.log_batch(run.info.run_id, [Metric("eval_value", 1.0, 1, 1)])
        client.set_terminated(run.info.run_id)
    arguments = [COMMAND, "--uri", store, "--experiment_name", "walks", "--download_dir", "tb"]
    process = subprocess.Popen(
        [str(Path(sys.executable).with_name("ditk-ray")), *arguments, "--workers", "1"],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_until(lambda: any(tmp_path.rglob("*tfevents*")), 60, "a run to be written")
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=30 * PATIENCE)
    assert process.returncode == 130, said
    assert "run it again for the rest" in said
    before = {file: file.stat().st_mtime_ns for file in tmp_path.rglob("*tfevents*")}

    again = cli(*arguments)

    assert 0 < len(before) < 63
    assert f"63 runs with 90 points: {63 - len(before)} written" in again.stdout
    assert before.items() <= {f: f.stat().st_mtime_ns for f in tmp_path.rglob("*tfevents*")}.items()
