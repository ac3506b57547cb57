"""What the tests share: a warm fork server, a real Ray cluster, and sweeps on it."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ditk_ray.execution.fork_client import SHARED_KEY
from ditk_ray.ray_cluster.session import quiet_ray
from ditk_ray.tracking.recording import calm_mlflow
from tests.browser import started_chromium
from tests.inline import DITK_RAY, run_inline
from tests.mlflow_server import MlflowServer
from tests.processes import PATIENCE
from tests.ray_cluster.ray_clusters import RayCluster

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
# A node that takes longer than this to start gives itself up.
os.environ["RAY_raylet_start_wait_time_s"] = str(round(30 * PATIENCE))  # noqa: SIM112
for name in ("RAY_ADDRESS", "MLFLOW_TRACKING_URI"):
    os.environ.pop(name, None)


_LONGEST = (
    "test_documents.py",
    "test_nodes.py",
    "test_submit.py",
    "test_sweeps.py",
    "test_cluster_document.py",
    "test_run.py",
    "test_tracking.py",
    "test_real_sweeps.py",
    "test_retrying.py",
    "test_recorder.py",
    "test_kube_chaos.py",
    "test_tune.py",
    "test_wrapped_commands.py",
    "test_resume.py",
    "test_page_seen.py",
    "test_slurm.py",
    "test_resume_existing.py",
    "test_benchmarks.py",
    "test_growing_cluster.py",
    "test_dizoo.py",
    "test_full_disk.py",
    "test_requests.py",
    "test_cluster_looking.py",
    "test_ui.py",
    "test_mlflow_to_tensorboard.py",
    "test_cluster_forward.py",
    "test_launched_mlflow.py",
    "test_looking_at_a_sweep.py",
    "test_fork_client.py",
    "test_sweep_jobs.py",
    "test_pod_script.py",
    "test_objectives.py",
    "test_searchers.py",
)
"""The files that take longest, in that order."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Have the longest files begin first: at the end of a run nobody waits for one of them."""
    places = {name: place for place, name in enumerate(_LONGEST)}
    items.sort(key=lambda item: places.get(item.path.name, len(places)))


@pytest.hookimpl(trylast=True)
def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Name a test that failed at once: a run that is cut short has no summary."""
    if report.failed and "PYTEST_XDIST_WORKER" not in os.environ:
        crash = getattr(report.longrepr, "reprcrash", None)
        why = str(crash.message if crash else report.longrepr).strip().splitlines() or [""]
        print(f"\nFAILED {report.nodeid} ({report.when}, {report.duration:.0f} s): {why[0][:300]}")


@pytest.fixture(scope="session")
def warm() -> Iterator[Any]:
    """One fork server for all tests: importing DI-engine takes seconds."""
    from ditk_ray.execution.fork_client import ForkClient

    with ForkClient() as node:
        node.join()
        node.preload(["ray.tune"])  # what defines a test's own entry imports it
        yield node


@pytest.fixture(scope="session")
def ray_address() -> Iterator[str]:
    """A real Ray cluster on this machine: a head with two CPUs, in its own processes."""
    with RayCluster({"CPU": 2}) as cluster:
        yield cluster.address


@pytest.fixture(scope="session")
def sweep_in(warm: Any, ray_address: str) -> Callable[..., Any]:
    """Run a job on the cluster, with its results in a folder, and return its outcome.

    Without a scheduler trials run one after the other, if the job does not say how many at
    once: they share an actor, and an actor takes seconds to start.
    """
    from ditk_ray.config.job_spec import JobSpec, check_job
    from ditk_ray.config.options import SweepOptions
    from ditk_ray.sweep.prepare import prepared_sweep
    from ditk_ray.sweep.run import run_sweep

    def run(results: Path, job: Any, listeners: Any = (), **options: Any) -> Any:
        spec = job if isinstance(job, JobSpec) else check_job(job, {})
        if spec.max_concurrent is None and spec.scheduler is None:
            spec = replace(spec, max_concurrent=1)
        given = SweepOptions(
            **{
                "storage_path": results,
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
def sweep(sweep_in: Callable[..., Any], tmp_path: Path) -> Callable[..., Any]:
    """Run a job on the cluster and return its outcome."""
    return partial(sweep_in, tmp_path / "results")


@pytest.fixture
def resume(warm: Any, ray_address: str) -> Callable[..., Any]:
    """Go on with a sweep that `sweep` ran, and return its outcome."""
    from ditk_ray.sweep.prepare import prepared_sweep
    from ditk_ray.sweep.run import run_sweep

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
        server.close()


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


_TRAINING = ("tune", "resume", "extend", "replay")


def _environment(request: pytest.FixtureRequest, arguments: tuple[str, ...]) -> dict[str, str]:
    """Have commands that train use the tests' fork server, and record nowhere.

    Importing DI-engine takes seconds, and so does MLflow.
    """
    if arguments[0] not in _TRAINING:
        return dict(os.environ)
    warm = request.getfixturevalue("warm")
    return {SHARED_KEY: warm.key, "MLFLOW_TRACKING_URI": "none", **os.environ}


@pytest.fixture
def cli(
    tmp_path: Path, request: pytest.FixtureRequest
) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run a command of `ditk-ray` to its end in an empty folder, inside this process.

    Importing Ray takes seconds: only where the process itself is tested, `driver` starts one.
    """

    def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return run_inline(arguments, tmp_path, _environment(request, arguments) | environment)

    return run


@pytest.fixture
def driver(
    tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start `ditk-ray` in a process of its own, in an empty folder; what is left is killed."""
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: str, **environment: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [DITK_RAY, *arguments],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=_environment(request, arguments) | environment,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()
