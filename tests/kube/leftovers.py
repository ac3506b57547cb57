"""What is in a namespace that nobody would want to find there after a sweep."""

from __future__ import annotations

from tests.kube.api_client import DIJOBS
from tests.kube.api_server import ApiServer

_EVERYWHERE = "configmaps/kube-root-ca.crt"
"""What Kubernetes itself puts into a namespace."""


def left_in(kube: ApiServer, namespace: str) -> list[str]:
    """Return the jobs of a namespace and all that could be left of one, as `kind/name`."""
    places = {
        "dijobs": f"{DIJOBS}/namespaces/{namespace}/dijobs",
        "configmaps": f"api/v1/namespaces/{namespace}/configmaps",
        "pods": f"api/v1/namespaces/{namespace}/pods",
        "services": f"api/v1/namespaces/{namespace}/services",
    }
    found = []
    for kind, path in places.items():
        items = kube.admin.get(path)["items"]
        found += [f"{kind}/{item['metadata']['name']}" for item in items]
    return [item for item in found if item != _EVERYWHERE]
