"""Ports of loopback that lead to pods, through a real API server to a stand-in kubelet."""

from __future__ import annotations

import secrets
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest

from ditk_ray.config.options import KubeSettings
from ditk_ray.errors import KubeForbiddenError, KubeUnreachableError
from ditk_ray.kube.connection import Kube, connect
from ditk_ray.kube.port_forward import PortForward, ServicePods
from tests.kube.api_server import ApiServer
from tests.kube.kuberay_crds import install_kuberay
from tests.kube.ray_manifests import make, ray_cluster
from tests.kube.stand_in.kuberay import StandInKubeRay
from tests.processes import free_port, wait_until

pytestmark = pytest.mark.kube

DASHBOARD = ("dashboard", 8265)


class Echo:
    """A real server that sends back what it gets, and closes when its client has said its last."""

    def __init__(self) -> None:
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._server.getsockname()[1])
        self.greets = False
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(client,), daemon=True).start()

    def _answer(self, client: socket.socket) -> None:
        with client:
            if self.greets:
                client.sendall(b"bye")
                return
            while data := client.recv(65536):
                client.sendall(data)


@dataclass(frozen=True)
class Place:
    """A namespace with a cluster whose head's dashboard is the echo."""

    server: ApiServer
    namespace: str
    operator: StandInKubeRay
    echo: Echo

    def kube(self, user: str = "admin") -> Kube:
        return connect(KubeSettings(self.server.kubeconfig(user, self.namespace)))

    def pods(self, cluster: str = "rl", user: str = "admin") -> ServicePods:
        return ServicePods(self.kube(user), f"{cluster}-head-svc", DASHBOARD)


@pytest.fixture(scope="module")
def place(_api_server: ApiServer) -> Iterator[Place]:
    """One for all tests of this module: they leave it as they found it."""
    _api_server.start()
    install_kuberay(_api_server.admin)
    name = f"test-{secrets.token_hex(4)}"
    _api_server.admin.create("api/v1/namespaces", {"metadata": {"name": name}})
    echo = Echo()
    with StandInKubeRay(_api_server, name, {8265: echo.port}) as operator:
        make(_api_server.admin, name, ray_cluster("rl"))
        yield Place(_api_server, name, operator, echo)
    echo.close()
    _api_server.admin.delete(f"api/v1/namespaces/{name}/pods", gracePeriodSeconds=0)
    _api_server.admin.delete(f"api/v1/namespaces/{name}")


@pytest.fixture
def told() -> list[str]:
    return []


@pytest.fixture
def forward(place: Place, told: list[str]) -> Iterator[PortForward]:
    pods = place.pods()
    pods.check(60)
    with PortForward(pods, free_port(), told.append) as made:
        yield made


def ask(port: int, data: bytes) -> bytes:
    """Send bytes and return as many, while they are still being sent."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as local:
        threading.Thread(target=local.sendall, args=(data,), daemon=True).start()
        got = bytearray()
        while len(got) < len(data) and (piece := local.recv(65536)):
            got += piece
    return bytes(got)


def test_many_connections_at_once_carry_megabytes_both_ways(forward: PortForward) -> None:
    sent = [bytes([number]) * 3_000_000 for number in range(12)]
    with ThreadPoolExecutor(len(sent)) as pool:
        got = list(pool.map(lambda data: ask(forward.port, data), sent))
    assert got == sent


def test_what_the_pod_says_last_arrives_before_the_connection_ends(
    forward: PortForward, place: Place
) -> None:
    place.echo.greets = True
    try:
        with socket.create_connection(("127.0.0.1", forward.port), timeout=60) as local:
            assert local.recv(100) == b"bye"
            assert local.recv(100) == b""
    finally:
        place.echo.greets = False


def test_who_has_said_its_last_is_still_answered(forward: PortForward) -> None:
    with socket.create_connection(("127.0.0.1", forward.port), timeout=60) as local:
        local.sendall(b"question")
        local.shutdown(socket.SHUT_WR)
        assert local.recv(100) == b"question"


def test_when_the_pod_is_replaced_the_next_connection_finds_the_new_one(
    forward: PortForward, place: Place
) -> None:
    assert ask(forward.port, b"first") == b"first"
    new = place.operator.replace_head("rl")
    assert ask(forward.port, b"second") == b"second"
    assert place.operator.kubelet.served[-1] == new


def test_a_connection_that_breaks_harms_no_other_and_the_next_works(
    forward: PortForward, place: Place
) -> None:
    with socket.create_connection(("127.0.0.1", forward.port), timeout=60) as local:
        local.sendall(b"a")
        assert local.recv(1) == b"a"
        place.operator.kubelet.cut()
        assert local.recv(1) == b""
    assert ask(forward.port, b"again") == b"again"


def test_what_the_node_says_went_wrong_is_told_once(
    forward: PortForward, place: Place, told: list[str]
) -> None:
    place.operator.ports.clear()
    try:
        assert ask(forward.port, b"x") == ask(forward.port, b"y") == b""
    finally:
        place.operator.ports[8265] = place.echo.port
    wait_until(lambda: told, 10, "what went wrong")
    assert len(told) == 1
    assert "rl-head-svc: error forwarding port 8265 to pod rl-head" in told[0]


def test_only_loopback_is_listened_at_and_a_port_that_is_taken_is_passed_over(
    place: Place, told: list[str]
) -> None:
    with PortForward(place.pods("nothing"), place.echo.port, told.append) as made:
        assert made.port != place.echo.port
        assert made.url == f"http://127.0.0.1:{made.port}"
        assert made._server.getsockname()[0] == "127.0.0.1"


def test_closing_ends_connections_that_are_open(forward: PortForward) -> None:
    with socket.create_connection(("127.0.0.1", forward.port), timeout=60) as local:
        local.sendall(b"a")
        assert local.recv(1) == b"a"
        forward.close()
        assert local.recv(1) == b""


def test_a_service_without_a_pod_that_is_ready_says_so(place: Place) -> None:
    place.operator.never_schedule("stuck-head-*")
    make(place.server.admin, place.namespace, ray_cluster("stuck"))
    path = f"api/v1/namespaces/{place.namespace}/endpoints"
    listed = lambda: [each["metadata"]["name"] for each in place.server.admin.get(path)["items"]]  # noqa: E731
    wait_until(lambda: "stuck-head-svc" in listed(), 30, "the head's Endpoints")
    with pytest.raises(KubeUnreachableError, match="no pod behind the Service stuck-head-svc"):
        place.pods("stuck").check(0)


def test_who_may_not_forward_is_told_which_right_is_missing(
    forward: PortForward, place: Place
) -> None:
    rule = {"apiGroups": [""], "resources": ["endpoints"], "verbs": ["list"]}
    place.server.grant(place.namespace, "reader", [rule])
    pods = place.pods(user="reader")

    def refused() -> str:
        with pytest.raises(KubeForbiddenError) as error:
            pods.check(0)
        return str(error.value)

    expected = "reader may not get pods/portforward"
    wait_until(lambda: expected in refused(), 20, "the Role to count")
    assert "see cluster_configs/cluster_rbac.yaml for the permissions" in refused()
