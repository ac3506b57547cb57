"""Which pod stands behind a Service just now."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import Any

from ditk_ray.errors import KubeError, KubeForbiddenError, KubeNotFoundError, KubeUnreachableError
from ditk_ray.kube.connection import Kube
from ditk_ray.kube.objects import Manifest
from ditk_ray.kube.pod_stream import PodStream
from ditk_ray.kube.resources import ENDPOINTS

_FRESH_SECONDS = 5.0
_LOOK_SECONDS = 0.5


@dataclass(frozen=True)
class PodPort:
    """A port of a pod."""

    pod: str
    port: int


class ServicePods:
    """The pods behind a Service, as its Endpoints have them. For any number of threads.

    `port` is the name and the number of the port that is wanted, of which one has to fit.
    """

    def __init__(self, kube: Kube, service: str, port: tuple[str, int]) -> None:
        self.service = service
        self._kube = kube
        self._port = port
        self._lock = threading.Lock()
        self._known: PodPort | None = None
        self._known_until = 0.0

    def connect(self, patience: float) -> PodStream:
        """Open a connection to a pod that is ready, for which `patience` seconds may be waited.

        A pod that is gone is replaced by the next. Raises a KubeError.
        """
        end = time.monotonic() + patience
        while True:
            try:
                found = self._find()
                return self._kube.pods.forward(found.pod, found.port)
            except (KubeNotFoundError, KubeUnreachableError):
                self._forget()
                if time.monotonic() + _LOOK_SECONDS > end:
                    raise
            time.sleep(_LOOK_SECONDS)

    def _find(self) -> PodPort:
        with self._lock:
            if self._known is None or time.monotonic() > self._known_until:
                self._known = self._look()
                self._known_until = time.monotonic() + _FRESH_SECONDS
            if self._known is None:
                raise KubeUnreachableError(f"no pod behind the Service {self.service} is ready")
            return self._known

    def _look(self) -> PodPort | None:
        chosen = f"metadata.name={self.service}"
        found = self._kube.objects(ENDPOINTS).list(fields=chosen, patience=0)
        return _pod_port(found[0], self._port) if found else None

    def _forget(self) -> None:
        with self._lock:
            self._known = None


def why_refused(error: KubeError) -> str:
    """Return an error in one line, with the right that is missing if one is."""
    text = str(error).partition("\n")[0]
    if isinstance(error, KubeForbiddenError) and "pods/portforward" in text:
        return f"{text}; a Role has to allow `get` and `create` of it"
    return text


def _pod_port(endpoints: Manifest, wanted: tuple[str, int]) -> PodPort | None:
    for subset in endpoints.get("subsets") or []:
        port = _port_number(subset.get("ports") or [], wanted)
        for address in subset.get("addresses") or []:
            target = address.get("targetRef") or {}
            if port and target.get("kind") == "Pod":
                return PodPort(str(target["name"]), port)
    return None


def _port_number(ports: list[dict[str, Any]], wanted: tuple[str, int]) -> int | None:
    name, number = wanted
    for each in ports:
        if each.get("name") == name or each.get("port") == number or len(ports) == 1:
            return int(each["port"])
    return None
