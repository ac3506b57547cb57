"""What the tests share: a warm fork server, a real Ray cluster, and sweeps on it."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from ditk_ray.cluster.ray_session import quiet_ray
from ditk_ray.tracking.store import calm_mlflow
from tests.browser import started_chromium
from tests.mlflow_server import MlflowServer
from tests.processes import can_connect, end, free_port, wait_until

# All tests that need Kubernetes share one API server, wherever they are.
pytest_plugins = ["tests.kube.fixtures"]

quiet_ray()
calm_mlflow()
# A shell that runs the tests in the background has Ctrl-C ignored, and nohup a terminal's end;
# what they start would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
# Ray guards clusters by a token. One of our own leaves the user's alone, and the
# processes that tests start inherit it.
os.environ["RAY_AUTH_MODE"] = "token"
os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)
for name in ("RAY_ADDRESS", "MLFLOW_TRACKING_URI"):
    os.environ.pop(name, None)


_LONGEST = (
    "test_documents.py",
    "test_chaos.py",
    "test_kube_chaos.py",
    "test_real_sweeps.py",
    "test_sweeps.py",
    "test_cluster_document.py",
    "test_submit.py",
    "test_slurm.py",
    "test_wrapped_commands.py",
    "test_cluster_forward.py",
    "test_launching.py",
    "test_rights.py",
    "test_dizoo.py",
    "test_survival.py",
    "test_nodes.py",
    "test_tracking.py",
)
"""The files that take minutes."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Have the longest files begin first: at the end of a run nobody waits for one of them."""
    places = {name: place for place, name in enumerate(_LONGEST)}
    items.sort(key=lambda item: places.get(item.path.name, len(places)))


@pytest.fixture(scope="session")
def warm() -> Iterator[Any]:
    """One fork server for all tests: importing DI-engine takes seconds."""
    from ditk_ray.trial.warm_node import WarmNode

    with WarmNode() as node:
        node.join()
        yield node


@pytest.fixture(scope="session")
def ray_address() -> Iterator[str]:
    """A real Ray cluster on this machine: a head with two CPUs, in its own processes."""
    port = free_port()
    command = [str(Path(sys.executable).with_name("ray")), "start", "--head", "--block"]
    command += [f"--port={port}", "--num-cpus=2", "--include-dashboard=false"]
    command += ["--object-store-memory=200000000", "--disable-usage-stats"]
    head = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    address = f"127.0.0.1:{port}"
    try:
        wait_until(lambda: can_connect(port), 60, "the Ray head to answer")
        yield address
    finally:
        below = psutil.Process(head.pid).children(recursive=True)
        head.terminate()
        head.wait(30)
        end(below)


@pytest.fixture
def sweep(warm: Any, ray_address: str, tmp_path: Path) -> Callable[..., Any]:
    """Run a job on the cluster and return its outcome."""
    from ditk_ray.config.job_spec import JobSpec, check_job
    from ditk_ray.sweep.run import run_sweep
    from ditk_ray.sweep.setup import SweepOptions, prepared_sweep

    def run(job: Any, listeners: Any = (), **options: Any) -> Any:
        spec = job if isinstance(job, JobSpec) else check_job(job, {})
        given = SweepOptions(
            **{
                "storage_path": tmp_path / "results",
                "run_mode": "remote",
                "ray_address": ray_address,
                "name": spec.name,
            }
            | options
        )
        with prepared_sweep(spec, given, warm) as prepared:
            return run_sweep(prepared, listeners)

    return run


@pytest.fixture
def resume(warm: Any, ray_address: str) -> Callable[..., Any]:
    """Go on with a sweep that `sweep` ran, and return its outcome."""
    from ditk_ray.sweep.run import run_sweep
    from ditk_ray.sweep.setup import prepared_sweep

    def run(earlier: Any) -> Any:
        saved = earlier.saved
        with prepared_sweep(saved.job, saved.options, warm, earlier) as prepared:
            return run_sweep(prepared)

    return run


@pytest.fixture(scope="session")
def _mlflow_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MlflowServer]:
    server = MlflowServer(tmp_path_factory.mktemp("mlflow_server"))
    try:
        yield server
    finally:
        server.kill()


@pytest.fixture
def mlflow_server(_mlflow_server: MlflowServer) -> MlflowServer:
    """A real MLflow server on a SQLite store, which a test may kill and start again.

    It takes seconds to start, so all tests share one, each with experiments of its own.
    """
    _mlflow_server.start()
    return _mlflow_server


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """A browser for the tests of a module: playwright's event loop must not outlive them."""
    with started_chromium() as browser:
        yield browser


@pytest.fixture
def cli(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run `ditk-ray` as a user does, in an empty folder."""

    def run(*arguments: str, timeout: float = 200) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(Path(sys.executable).with_name("ditk-ray")), *arguments],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=timeout,
        )

    return run


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start `ditk-ray` in a process of its own, in an empty folder; what is left is killed."""
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: str, **environment: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [str(Path(sys.executable).with_name("ditk-ray")), *arguments],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, **environment},
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()
