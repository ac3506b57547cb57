"""Every command of docs/clusters.md, run as it stands there and in that order.

A real Ray is the cluster `lab`, and what stands behind the head that a stand-in for KubeRay makes
on a real Kubernetes API server. Commands have the rights of cluster_rbac.yaml and no more.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from ditk_ray.execution.fork_client import SHARED_KEY
from tests.dijob.test_rights import wait_for_rules
from tests.kube.api_client import ApiError
from tests.kube.api_server import ApiServer
from tests.kube.kuberay_crds import install_kuberay
from tests.kube.stand_in.kuberay import StandInKubeRay
from tests.processes import PATIENCE, wait_until
from tests.ray_cluster.ray_clusters import RayCluster
from tests.test_documents import CLUSTERS, ROOT, commands, run, write_small_jobs

pytestmark = [pytest.mark.kube, pytest.mark.ray]

RBAC = ROOT / "cluster_configs" / "cluster_rbac.yaml"
NAMESPACE = "rl"
STORAGE = "apis/storage.k8s.io/v1/storageclasses"
TRAIN = "import sys; print('trained with', *sys.argv[1:])\n"


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory, warm: Any) -> Iterator[RayCluster]:
    results = tmp_path_factory.mktemp("lab")
    surroundings = {"DITK_RAY_STORAGE": str(results), SHARED_KEY: warm.key}
    with RayCluster({"CPU": 2}, dashboard=True, environment=surroundings) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def kubernetes(_api_server: ApiServer, lab: RayCluster) -> Iterator[ApiServer]:
    """An API server with KubeRay and storage, and somebody called `ranger` who may use it."""
    _api_server.start()
    install_kuberay(_api_server.admin)
    _api_server.provide_namespace(NAMESPACE)
    shared = {"metadata": {"name": "shared"}, "provisioner": "example.org/nfs"}
    with contextlib.suppress(ApiError):
        _api_server.admin.create(STORAGE, shared)
    (role,) = [one for one in yaml.safe_load_all(RBAC.read_text()) if one["kind"] == "Role"]
    _api_server.grant(NAMESPACE, "ranger", role["rules"])
    wait_for_rules(_api_server, NAMESPACE, "ranger", role["rules"])
    port = int(lab.dashboard_url.rpartition(":")[2])
    with StandInKubeRay(_api_server, NAMESPACE, {8265: port, 5000: port}, lab.token):
        yield _api_server


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project as a user has one, with what the document speaks of."""
    made = tmp_path_factory.mktemp("project")
    write_small_jobs(made, is_pretended=True)
    shutil.copytree(ROOT / "scripts", made / "scripts")
    (made / "train.py").write_text(TRAIN)
    (tasks,) = re.findall(r"```yaml\n(.*?)```", CLUSTERS.read_text(), re.DOTALL)
    (made / "tasks.yaml").write_text(tasks)
    return made


@pytest.fixture(scope="module")
def environment(
    kubernetes: ApiServer,
    lab: RayCluster,
    ray_address: str,
    warm: Any,
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, str]:
    """A home with a kubeconfig, and a line for the cluster `lab`; what runs here shares a Ray."""
    home = tmp_path_factory.mktemp("home")
    (home / ".cluster_config").write_text(f"name: lab address: {lab.dashboard_url}\n")
    return os.environ | {
        "HOME": str(home),
        "RAY_ADDRESS": ray_address,
        SHARED_KEY: warm.key,
        "KUBECONFIG": str(kubernetes.kubeconfig("ranger", NAMESPACE)),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }


@pytest.fixture(scope="module")
def forwards(environment: dict[str, str]) -> Iterator[list[subprocess.Popen[bytes]]]:
    """What runs in the background, until a person interrupts it."""
    started: list[subprocess.Popen[bytes]] = []
    yield started
    for process in started:
        process.send_signal(signal.SIGINT)
        assert process.wait(60 * PATIENCE) == 0


@pytest.mark.parametrize("command", list(commands(CLUSTERS)))
def test_a_command_of_the_document_works(command, folder, environment, forwards):
    if command.endswith("&"):
        words = shlex.split(command.removesuffix("&"))
        forwards.append(
            subprocess.Popen(words, cwd=folder, env=environment, stdout=subprocess.DEVNULL)
        )
        known = Path(environment["HOME"]) / ".cluster_config"
        line = "name: rl address: http://127.0.0.1:"
        wait_until(lambda: line in known.read_text(), 60, "the forwarded port")
        return
    shown = run(command, folder, environment)
    assert shown.returncode == 0, f"{shown.stdout}\n{shown.stderr}"
    assert shown.stdout or shown.stderr
    if "train.py" in command:
        assert "trained with --seed" in shown.stdout


def test_in_the_end_nothing_is_left(kubernetes: ApiServer, folder: Path):
    """Runs after all commands: pytest keeps to the order of a file."""
    labelled = {"labelSelector": "app.kubernetes.io/managed-by=ditk-ray"}
    paths = [f"apis/ray.io/v1/namespaces/{NAMESPACE}/{kind}" for kind in ("rayclusters", "rayjobs")]
    core = ("services", "pods", "persistentvolumeclaims", "serviceaccounts")
    paths += [f"api/v1/namespaces/{NAMESPACE}/{kind}" for kind in core]
    paths += [f"apis/apps/v1/namespaces/{NAMESPACE}/deployments"]
    rights = f"apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}"
    paths += [f"{rights}/roles", f"{rights}/rolebindings"]
    paths += [f"apis/networking.k8s.io/v1/namespaces/{NAMESPACE}/networkpolicies"]
    for path in paths:
        wait_until(
            lambda path=path: not kubernetes.admin.get(path, **labelled)["items"], 60, f"no {path}"
        )
    assert (folder / "ditk_ray_results/nightly/sweep.json").is_file()
