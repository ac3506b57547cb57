"""What there is of Ray clusters in a namespace, as a plain client sees it."""

from __future__ import annotations

from typing import Any

from tests.kube.api_server import ApiServer
from tests.kube.kuberay_crds import RAY

PLACES = {
    "RayJob": f"{RAY}/namespaces/{{}}/rayjobs",
    "RayCluster": f"{RAY}/namespaces/{{}}/rayclusters",
    "Deployment": "apis/apps/v1/namespaces/{}/deployments",
    "Service": "api/v1/namespaces/{}/services",
    "ServiceAccount": "api/v1/namespaces/{}/serviceaccounts",
    "PersistentVolumeClaim": "api/v1/namespaces/{}/persistentvolumeclaims",
    "Role": "apis/rbac.authorization.k8s.io/v1/namespaces/{}/roles",
    "RoleBinding": "apis/rbac.authorization.k8s.io/v1/namespaces/{}/rolebindings",
    "NetworkPolicy": "apis/networking.k8s.io/v1/namespaces/{}/networkpolicies",
}


def objects_in(kube: ApiServer, namespace: str) -> dict[str, dict[str, Any]]:
    """Return all objects of the kinds that a launch makes, as `Kind/name`."""
    found: dict[str, dict[str, Any]] = {}
    for kind, path in PLACES.items():
        listed = kube.admin.get(path.format(namespace))
        known = {"apiVersion": listed["apiVersion"], "kind": kind}  # lists leave it out of items
        found |= {f"{kind}/{item['metadata']['name']}": known | item for item in listed["items"]}
    return found


def versions_in(kube: ApiServer, namespace: str) -> dict[str, str]:
    """Return their resource versions, which change with every change."""
    found = objects_in(kube, namespace)
    return {name: item["metadata"]["resourceVersion"] for name, item in found.items()}


def put(kube: ApiServer, namespace: str, kind: str, body: dict[str, Any]) -> dict[str, Any]:
    """Make an object as somebody else."""
    return kube.admin.create(PLACES[kind].format(namespace), body)
