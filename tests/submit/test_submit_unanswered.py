"""`ditk-ray submit` where a cluster, or the answer to a question, is not to be had."""

from __future__ import annotations

import contextlib
import json
import ssl
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from ditk_ray.cli.main import main
from ditk_ray.submit.job_api import proxy_to
from tests.kube.certificates import Authority, Certificate
from tests.processes import PATIENCE, free_port


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
    assert "cannot reach cluster gone" in said.err
    assert len(dashboard.jobs) == len(said.out.splitlines()) == 2


def test_a_cluster_that_is_named_has_to_answer(home, dashboard, capsys):
    known = home / ".cluster_config"
    known.write_text(f"name: gone address: {nowhere()}\nname: lab address: {dashboard.url}\n")
    assert main([*SEND, "--cluster", "gone", "--cluster", "lab", *TWO]) == 2
    assert main([*SEND, "--address", nowhere(), "--address", dashboard.url, *TWO]) == 2
    known.write_text(f"name: gone address: {nowhere()}\n")
    assert main([*SEND, *TWO]) == 2, "and of all that are known, one"
    assert capsys.readouterr().err.count("cannot reach cluster") == 3
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


def test_the_password_of_an_address_is_not_printed(home, dashboard, capsys, monkeypatch):
    monkeypatch.delenv("RAY_AUTH_TOKEN")
    secret = dashboard.url.replace("//", "//me:pa55@")
    assert main([*SEND, "--address", secret, "--format", "json", "--", "true"]) == 0
    assert main(["submit", "--address", nowhere().replace("//", "//me:pa55@"), "--list"]) == 2
    dashboard.jobs.clear()
    dashboard.is_mute = True
    assert main([*SEND, "--address", secret, "--", "true"]) == 1
    (home / ".cluster_config").write_text(f"name: lab address: {secret}\nlab {secret}\n")
    assert main([*SEND, "--", "true"]) == 2
    said = capsys.readouterr()
    masked = dashboard.url.replace("//", "//me:***@")
    assert f'"address": "{masked}"' in said.out
    assert f"--address {masked}" in said.err
    assert "pa55" not in said.out + said.err


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
    assert "--env SECRET: has to be NAME=VALUE, or the name of a variable" in said
    assert "--env =x: has to be NAME=VALUE" in said
    assert len(dashboard.jobs) == 1


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.10", "[::1]", "localhost", "LOCALHOST."])
def test_no_proxy_sees_what_goes_to_this_machine(host, monkeypatch):
    for name in ("http_proxy", "https_proxy"):
        monkeypatch.setenv(name, "http://proxy.example:3128")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    assert proxy_to(f"http://{host}:8265") is None
    assert proxy_to(f"https://{host}") is None
    assert proxy_to("http://10.0.0.7:8265") == "http://proxy.example:3128"
    assert proxy_to("http://localhost.example:8265") == "http://proxy.example:3128"


def test_nothing_at_an_address_is_told_within_seconds(home, capsys):
    begun = time.monotonic()
    assert main(["submit", "--address", nowhere(), "--", "true"]) == 2
    said = capsys.readouterr().err
    assert "cannot reach cluster" in said
    assert "Connection refused" in said
    assert time.monotonic() - begun < 60 * PATIENCE


@contextlib.contextmanager
def stand_in_server(body: str, certificate: Certificate | None = None) -> Iterator[str]:
    """Serve one answer to every question, where another server or an old Ray is meant."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            is_json = body.startswith("{")
            self.send_header("Content-Type", "application/json" if is_json else "text/html")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, format: str, *args: object) -> None:
            """Write nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate.certificate, certificate.key)
            server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http{'s' if certificate else ''}://127.0.0.1:{server.server_port}"
        server.shutdown()


OLD_RAY = '{"ray_version": "2.9.3"}'


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (OLD_RAY, "has Ray 2.9.3"),
        ('{"hello": 1}', "is not Ray's dashboard"),
        ("<html>", "is not Ray's dashboard"),
    ],
)
def test_another_server_and_an_old_ray_are_told(home, capsys, body, told):
    with stand_in_server(body) as address:
        assert main(["submit", "--address", address, "--", "tune"]) == 2
    assert told in capsys.readouterr().err


def test_a_certificate_is_believed_only_if_its_authority_is_given(home, capsys, tmp_path):
    authority = Authority(tmp_path)

    def said(*flags: str) -> str:
        assert main(["submit", "--address", address, *flags, "--", "tune"]) == 2
        return capsys.readouterr().err

    with stand_in_server(OLD_RAY, authority.server("dashboard")) as address:
        refused = said()
        assert "is not trusted" in refused
        assert "--ca_cert FILE" in refused
        for flags in (["--ca_cert", str(authority.certificate)], ["--insecure"]):
            assert "has Ray 2.9.3" in said(*flags), "it was asked, and answered"
        assert "--ca_cert" in said("--ca_cert", str(tmp_path))
