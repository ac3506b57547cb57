"""`ditk-ray ui`: MLflow's real UI on a real store."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from pathlib import Path

import pytest

from ditk_ray.cli.main import main
from tests.cli.web import fetch, started
from tests.processes import PATIENCE, can_connect, free_port, processes_in, wait_until
from tests.record.written_sweep import WrittenSweep
from tests.tracking.played_sweep import PlayedSweep

COMMAND = str(Path(sys.executable).with_name("ditk-ray"))
SEARCH = "/ajax-api/2.0/mlflow/runs/search"


@pytest.fixture
def recorded(tmp_path: Path) -> PlayedSweep:
    """A sweep that was really recorded in the embedded store."""
    played = PlayedSweep(tmp_path / "ditk_ray_results/mine", "embedded").start_alone()
    trial = played.trial(0)
    played.report(trial, 5.0, 10)
    played.end()
    return played


@pytest.mark.mlflow
def test_the_ui_shows_the_sweep_to_others_and_leaves_nothing_behind(recorded, tmp_path):
    """The documents' test runs it for this machine alone."""
    port = free_port()
    command = [COMMAND, "ui", "mine", "--host", "0.0.0.0", "--port", str(port)]
    elsewhere = {"MLFLOW_TRACKING_URI": "http://127.0.0.1:1"}  # of no interest here
    with started(command, tmp_path, env=os.environ | elsewhere) as process:
        page = process.stdout.readline().strip()
        check_ui(page, recorded.folder, socket.gethostname(), port)
        assert len(processes_in(tmp_path)) >= 2
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=30 * PATIENCE)
        assert process.returncode == 0
        assert "read and delete" in err
        assert "INFO" not in err
        wait_until(lambda: not processes_in(tmp_path), 5, "the last process to end")
    assert not can_connect(port)
    assert [item.name for item in tmp_path.iterdir()] == ["ditk_ray_results"]


def check_ui(page: str, folder: Path, name: str, port: int) -> None:
    """Ask for what a browser would that was given the page's address."""
    server, _, place = page.partition("/#")
    assert server == f"http://{name}:{port}"
    _, _, experiment, _, run = place.partition("?")[0].split("/")
    local = f"http://127.0.0.1:{port}"
    assert b"<title>MLflow</title>" in fetch(local, Host=f"127.0.0.1:{port}")[1]
    as_printed = {"Host": f"{name}:{port}", "Origin": server}
    assert b"<title>MLflow</title>" in fetch(local, **as_printed)[1]
    status, found = fetch(local + SEARCH, {"experiment_ids": [experiment]}, **as_printed)
    assert status == 200
    runs = {item["info"]["run_id"]: item["info"]["run_name"] for item in json.loads(found)["runs"]}
    assert sorted(runs.values()) == ["mine", "trial_00000"]
    assert runs[run] == "mine"
    _, kept = fetch(f"{local}/get-artifact?path=sweep.json&run_uuid={run}", **as_printed)
    assert kept == (folder / "sweep.json").read_bytes()
    # A page elsewhere that had its name point to this machine gets nothing.
    assert fetch(local + SEARCH, {"experiment_ids": ["0"]}, Host="elsewhere.example")[0] == 403
    other = {**as_printed, "Origin": "http://elsewhere.example"}
    assert fetch(local + SEARCH, {"experiment_ids": ["0"]}, **other)[0] == 403


@pytest.mark.mlflow
def test_a_store_that_mlflow_cannot_read_is_explained_by_its_log(tmp_path, cli):
    (tmp_path / "ditk_ray_results").mkdir()
    (tmp_path / "ditk_ray_results/mlflow.db").write_text("this is no database, " * 100)
    shown = cli("ui")
    assert shown.returncode == 1
    assert "MLflow's UI did not start" in shown.stderr
    assert "file is not a database" in shown.stderr
    assert processes_in(tmp_path) == []


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["ui", *arguments]) == 2
    return capsys.readouterr().err


@pytest.fixture
def storage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path / "ditk_ray_results"


def test_where_there_is_no_store_it_says_how_one_is_made(storage, capsys):
    message = refused(capsys)
    assert "mlflow.db: there is no such store" in message
    assert "ditk-ray tune" in message
    assert not storage.exists()


def test_a_sweep_that_is_not_recorded_says_what_shows_it(storage, capsys):
    WrittenSweep(storage / "mine").write()
    assert "`ditk-ray report mine`" in refused(capsys, "mine")


def test_a_sweep_on_a_server_is_pointed_to(storage, capsys):
    WrittenSweep(storage / "mine").write().recorded("https://me:secret@host:5000/mlflow")
    assert main(["ui", "mine"]) == 0
    out, err = capsys.readouterr()
    assert (
        out
        == "https://host:5000/mlflow/#/experiments/7/runs/abc123?workflowType=machine_learning\n"
    )
    assert "secret" not in err


def test_a_sweep_on_databricks_is_named(storage, capsys):
    WrittenSweep(storage / "mine").write().recorded("databricks")
    assert main(["ui", "mine"]) == 0
    assert "recorded in databricks, experiment mine" in capsys.readouterr().err


def test_a_port_that_is_taken_is_refused_with_one_that_is_free(storage, capsys):
    storage.mkdir()
    (storage / "mlflow.db").touch()
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        port = str(server.getsockname()[1])
        assert f"--port {port}: is taken" in refused(capsys, "--port", port)


def test_the_page_is_opened_in_the_browser_if_asked(storage, tmp_path, driver, monkeypatch):
    WrittenSweep(storage / "mine").write().recorded("http://host:5000")
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > {tmp_path}/opened\n')
    browser.chmod(0o755)
    monkeypatch.setenv("BROWSER", f"{browser} %s")
    assert driver("ui", "mine", "--open").wait(30 * PATIENCE) == 0
    opened = (tmp_path / "opened").read_text().strip()
    assert opened == "http://host:5000/#/experiments/7/runs/abc123?workflowType=machine_learning"
