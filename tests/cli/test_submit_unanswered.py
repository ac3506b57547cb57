"""`ditk-ray submit` where a cluster, or the answer to a question, is not to be had."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from ditk_ray.cli.main import main
from ditk_ray.cluster.jobs.job_api import _proxy_to
from tests.processes import free_port


class Dashboard(ThreadingHTTPServer):
    """A cluster that takes every job; one that `is_mute` takes it, and answers no more."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.jobs: list[dict[str, Any]] = []
        self.is_mute = False


class _Handler(BaseHTTPRequestHandler):
    server: Dashboard

    def do_GET(self) -> None:
        if not self.server.is_mute or not self.server.jobs:
            self._answer({"ray_version": version("ray")})

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.jobs.append(json.loads(body))
        if not self.server.is_mute:
            self._answer({})

    def _answer(self, body: dict[str, Any]) -> None:
        text = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, format: str, *args: object) -> None:
        """Write nothing."""


@pytest.fixture
def dashboard() -> Iterator[Dashboard]:
    with Dashboard() as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home, and a folder with a program in which commands are run."""
    project = tmp_path / "project"
    project.mkdir()
    (project / "program.py").touch()
    monkeypatch.chdir(project)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    return tmp_path


SEND = ["submit", "--no_wait", "--lost_after", "1s"]
TWO = ["--", "true", "---", "true"]


def nowhere() -> str:
    return f"http://127.0.0.1:{free_port()}"


def test_a_cluster_that_is_gone_does_not_keep_jobs_from_the_others(home, dashboard, capsys):
    known = home / ".cluster_config"
    known.write_text(f"name: gone address: {nowhere()}\nname: lab address: {dashboard.url}\n")

    assert main([*SEND, *TWO]) == 0

    said = capsys.readouterr()
    assert "nothing answers for the cluster gone" in said.err
    assert len(dashboard.jobs) == len(said.out.splitlines()) == 2


def test_a_cluster_that_is_named_has_to_answer(home, dashboard, capsys):
    known = home / ".cluster_config"
    known.write_text(f"name: gone address: {nowhere()}\nname: lab address: {dashboard.url}\n")
    assert main([*SEND, "--cluster", "gone", "--cluster", "lab", *TWO]) == 2
    assert main([*SEND, "--address", nowhere(), "--address", dashboard.url, *TWO]) == 2
    known.write_text(f"name: gone address: {nowhere()}\n")
    assert main([*SEND, *TWO]) == 2, "and of all that are known, one"
    assert capsys.readouterr().err.count("nothing answers for the cluster") == 3
    assert dashboard.jobs == []


def test_a_job_whose_answer_was_lost_is_told_as_one_that_may_run(home, dashboard, capsys):
    dashboard.is_mute = True
    assert main([*SEND, "--address", dashboard.url, *TWO]) == 1

    said = capsys.readouterr()
    (job_id,) = {job["submission_id"] for job in dashboard.jobs}
    assert said.out == ""
    assert "0 of 2 jobs were sent" in said.err
    assert f"{job_id} may have been started" in said.err
    assert f"ditk-ray submit --follow {job_id} --address {dashboard.url}" in said.err
    assert f"ditk-ray submit --stop {job_id} --address {dashboard.url}" in said.err


def test_a_variable_that_is_only_named_has_the_value_it_has_here(
    home, dashboard, capsys, monkeypatch
):
    monkeypatch.setenv("SECRET", "a=b")
    words = [*SEND, "--address", dashboard.url, "--env", "SECRET", "--env", "COLOUR=red"]
    assert main([*words, "--", "true"]) == 0
    (job,) = dashboard.jobs
    assert job["runtime_env"]["env_vars"] == {"SECRET": "a=b", "COLOUR": "red"}
    monkeypatch.delenv("SECRET")
    assert main([*words, "--", "true"]) == 2
    assert main([*SEND, "--address", dashboard.url, "--env", "=x", "--", "true"]) == 2
    said = capsys.readouterr().err
    assert "--env SECRET: is not set here" in said
    assert "--env =x: has to be NAME=VALUE" in said
    assert len(dashboard.jobs) == 1


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.10", "[::1]", "localhost", "LOCALHOST."])
def test_no_proxy_sees_what_goes_to_this_machine(host, monkeypatch):
    for name in ("http_proxy", "https_proxy"):
        monkeypatch.setenv(name, "http://proxy.example:3128")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    assert _proxy_to(f"http://{host}:8265") is None
    assert _proxy_to(f"https://{host}") is None
    assert _proxy_to("http://10.0.0.7:8265") == "http://proxy.example:3128"
    assert _proxy_to("http://localhost.example:8265") == "http://proxy.example:3128"
