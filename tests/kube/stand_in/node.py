"""A node of the stand-in: an object in the API, and the kubelet's log server."""

from __future__ import annotations

import contextlib
from typing import Any

from tests.kube.api_client import ApiClient, ApiError
from tests.kube.certificates import Certificate
from tests.kube.stand_in.events import now
from tests.kube.stand_in.log_server import FindLog, LogServer


class StandInNode:
    """Alive until it is lost."""

    def __init__(
        self, client: ApiClient, name: str, certificate: Certificate, find_log: FindLog
    ) -> None:
        self._client = client
        self.name = name
        self.alive = True
        self.logs = LogServer(certificate, find_log)
        client.create("api/v1/nodes", {"metadata": {"name": name}})
        self._report("True", "KubeletReady")

    def lose(self) -> None:
        """Answer no more."""
        self.alive = False
        self.logs.close()
        self._report("Unknown", "NodeStatusUnknown")

    def remove(self) -> None:
        if self.alive:
            self.alive = False
            self.logs.close()
        with contextlib.suppress(ApiError):
            self._client.delete(f"api/v1/nodes/{self.name}")

    def _report(self, ready: str, reason: str) -> None:
        condition = {"type": "Ready", "status": ready, "reason": reason}
        times = {"lastHeartbeatTime": now(), "lastTransitionTime": now()}
        status: dict[str, Any] = {
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": self.logs.port}},
            "conditions": [{**condition, **times}],
        }
        self._client.patch(f"api/v1/nodes/{self.name}/status", {"status": status})
