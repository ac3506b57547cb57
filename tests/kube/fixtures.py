"""What the tests on Kubernetes share: an API server, a namespace for each, and a stand-in."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kube.api_server import ApiServer
from tests.kube.kuberay_crds import install_kuberay
from tests.kube.stand_in.cluster import StandInCluster
from tests.kube.stand_in.kuberay import StandInKubeRay


@pytest.fixture(scope="session")
def _api_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    server = ApiServer(tmp_path_factory.mktemp("kube"))
    server.start()
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture
def kube(_api_server: ApiServer) -> ApiServer:
    """A real API server, which a test may kill and start again.

    All tests of a process share one, each with a namespace of its own.
    """
    _api_server.start()
    return _api_server


@pytest.fixture
def kuberay(kube: ApiServer) -> ApiServer:
    """The API server, which knows KubeRay's resources; nothing acts on them."""
    install_kuberay(kube.admin)
    return kube


@pytest.fixture
def namespace(kube: ApiServer) -> Iterator[str]:
    """A namespace for this test alone, which is deleted with all that is in it."""
    name = f"test-{secrets.token_hex(4)}"
    kube.admin.create("api/v1/namespaces", {"metadata": {"name": name}})
    yield name
    # The test may have left the API server dead.
    kube.start()
    # No kubelet may be left that would confirm a gentle end.
    kube.admin.delete(f"api/v1/namespaces/{name}/pods", gracePeriodSeconds=0)
    kube.admin.delete(f"api/v1/namespaces/{name}")


@pytest.fixture
def stand_in(kube: ApiServer, namespace: str, tmp_path: Path) -> Iterator[StandInCluster]:
    """An operator and a node for this test's namespace, whose containers are real processes."""
    with StandInCluster(kube, namespace, tmp_path / "stand_in") as cluster:
        yield cluster


@pytest.fixture
def stand_in_kuberay(kuberay: ApiServer, namespace: str) -> Iterator[StandInKubeRay]:
    """KubeRay's operator for this test's namespace; its pods are objects only."""
    with StandInKubeRay(kuberay, namespace) as operator:
        yield operator
