"""The MLflow server of a launch: the very command of its manifest, run here."""

from __future__ import annotations

import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import yaml

from tests.kuberay.launches import GOLDEN
from tests.processes import PATIENCE, end, free_port, wait_until

pytestmark = pytest.mark.mlflow


@pytest.fixture
def server(tmp_path: Path) -> Iterator[int]:
    """Start it with a folder of ours for its volume and a port of ours; yields the port."""
    documents = yaml.safe_load_all((GOLDEN / "plain.yaml").read_text())
    (deployment,) = [each for each in documents if each["kind"] == "Deployment"]
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    port, volume = free_port(), tmp_path / "volume"
    volume.mkdir()
    words = [*container["command"], *container["args"]]
    command = [
        word.replace("/mlflow/", f"{volume}/")
        .replace("--host=0.0.0.0", "--host=127.0.0.1")
        .replace("--port=5000", f"--port={port}")
        for word in words
    ]
    assert command[0] == "mlflow"
    process = subprocess.Popen(
        [sys.executable, "-m", *command],
        cwd=tmp_path,
        env={**os.environ, **{each["name"]: each["value"] for each in container["env"]}},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        wait_until(lambda: _status(port, "/health", "any") == 200, 120, "MLflow to answer")
        yield port
        assert (volume / "mlflow.db").is_file()
    finally:
        below = psutil.Process(process.pid).children(recursive=True)
        for each in [*below, process]:
            each.kill()
        process.wait(20 * PATIENCE)
        end(below)


def _status(port: int, path: str, host: str) -> int:
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers={"Host": host})
    try:
        with urllib.request.urlopen(request, timeout=20 * PATIENCE) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0


def test_it_answers_to_its_service_and_to_loopback_and_to_no_other_name(server):
    path = "/api/2.0/mlflow/experiments/search?max_results=1"
    within = ("", ".default", ".default.svc", ".default.svc.cluster.local")
    known = [f"rl-mlflow{end}:5000" for end in within] + ["127.0.0.1:5123", "localhost:5000"]
    assert [_status(server, path, host) for host in known] == [200] * len(known)
    strangers = ("evil.example.com", "rl-mlflow.evil.example.com", "rl-mlflow.other.svc:5000")
    assert [_status(server, path, host) for host in strangers] == [403] * len(strangers)
