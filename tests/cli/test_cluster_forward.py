"""`ditk-ray cluster forward`: from loopback, through a real API server, to a real Ray head."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import urllib3

from ditk_ray.cli.servers import interruptible
from ditk_ray.kuberay.lookup import registered
from tests.cli.test_cluster_looking import RULES
from tests.dijob.test_rights import wait_for_rules
from tests.kube.api_server import ApiServer
from tests.kube.ray_manifests import make, make_mlflow, ray_cluster
from tests.kube.stand_in.kuberay import StandInKubeRay
from tests.processes import PATIENCE, free_port
from tests.ray_cluster.ray_clusters import RayCluster

pytestmark = [pytest.mark.kube, pytest.mark.ray]

DITK_RAY = str(Path(sys.executable).with_name("ditk-ray"))
BEFORE = "name: rl address: http://rl-head-svc.rl.svc:8265\n"


@pytest.fixture(scope="module")
def ray() -> Iterator[RayCluster]:
    with RayCluster({"CPU": 1}, dashboard=True, token=secrets.token_hex(32)) as cluster:
        yield cluster


@pytest.fixture
def pages(tmp_path: Path) -> Iterator[ThreadingHTTPServer]:
    """What stands where MLflow would: any web server."""
    folder = tmp_path / "pages"
    folder.mkdir()
    (folder / "version").write_text("a page of MLflow's pod")
    server = ThreadingHTTPServer(
        ("127.0.0.1", 0), lambda *given: _Quiet(*given, directory=str(folder))
    )
    threading.Thread(target=server.serve_forever, args=(0.1,), daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *arguments: object) -> None:
        """Say nothing."""


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM])
def test_a_terminal_that_is_closed_leaves_the_file_of_clusters_as_it_was(
    number: signal.Signals, tmp_path: Path
) -> None:
    file = tmp_path / ".cluster_config"
    file.write_text(BEFORE)
    before = signal.signal(number, signal.SIG_DFL)
    try:
        with (
            interruptible("forwarding has ended"),
            registered(file, "rl", "http://127.0.0.1:9000"),
            contextlib.ExitStack() as leaving,
        ):
            assert file.read_text() != BEFORE
            # From the terminal, and then from the shell.
            leaving.callback(os.kill, os.getpid(), number)
            os.kill(os.getpid(), number)
            time.sleep(10)
            pytest.fail("it went on")
        assert signal.getsignal(number) is signal.SIG_DFL
    finally:
        signal.signal(number, before)
    assert file.read_text() == BEFORE


def test_what_nohup_started_outlives_its_terminal() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with interruptible("forwarding has ended"):
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_job_reaches_a_real_head_by_the_forwarded_port(
    kuberay: ApiServer, namespace: str, ray: RayCluster, pages: ThreadingHTTPServer, tmp_path: Path
) -> None:
    head = int(ray.dashboard_url.rpartition(":")[2])
    ports = {8265: head, 5000: int(pages.server_address[1])}
    kuberay.grant(namespace, "ranger", RULES)
    wait_for_rules(kuberay, namespace, "ranger", RULES)
    home = tmp_path / "home"
    home.mkdir()
    (home / ".cluster_config").write_text(BEFORE)
    environment = {key: value for key, value in os.environ.items() if key != "RAY_AUTH_TOKEN"}
    environment |= {"HOME": str(home), "KUBECONFIG": str(kuberay.kubeconfig("ranger", namespace))}
    wanted = free_port()
    with StandInKubeRay(kuberay, namespace, ports, ray.token) as operator:
        make(kuberay.admin, namespace, ray_cluster("rl"))
        make_mlflow(kuberay.admin, namespace)
        status = [DITK_RAY, "cluster", "status", "rl", "--wait", f"{120 * PATIENCE:.0f}s"]
        subprocess.run(
            status, env=environment, check=True, capture_output=True, timeout=200 * PATIENCE
        )
        forward = subprocess.Popen(
            [DITK_RAY, "cluster", "forward", "rl", f"--port={wanted}", f"--mlflow_port={wanted}"],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            assert forward.stdout is not None
            dashboard, mlflow = (forward.stdout.readline().split() for _ in range(2))
            assert dashboard == ["dashboard", f"http://127.0.0.1:{wanted}"]
            assert mlflow[0] == "mlflow"
            assert mlflow[1] != dashboard[1]  # a port that is taken is passed over
            page = urllib3.request("GET", f"{mlflow[1]}/version", timeout=30 * PATIENCE)
            assert page.data == b"a page of MLflow's pod"
            assert f"http://127.0.0.1:{wanted}" in (home / ".cluster_config").read_text()

            operator.replace_head("rl")
            hello = "print('the answer is', 6 * 7)"
            submitted = subprocess.run(
                [DITK_RAY, "submit", "--cluster", "rl", "--", "python", "-c", hello],
                env=environment,
                cwd=home,
                capture_output=True,
                text=True,
                timeout=240 * PATIENCE,
            )
            assert submitted.returncode == 0, submitted.stderr
            assert "the answer is 42" in submitted.stdout
            forward.send_signal(signal.SIGINT)
            _, said = forward.communicate(timeout=60 * PATIENCE)
        finally:
            forward.kill()
            forward.communicate()
    assert forward.returncode == 0, said
    assert "ditk-ray submit --cluster rl" in said
    assert "Traceback" not in said
    assert (home / ".cluster_config").read_text() == BEFORE
    assert (home / ".ray" / "tokens" / "rl").read_text().strip() == ray.token
