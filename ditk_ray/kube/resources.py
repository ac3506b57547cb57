"""The kinds of objects that are spoken about with the API server, and where each is found."""

from __future__ import annotations

from dataclasses import dataclass

DIJOB_API = "diengine.opendilab.org/v2alpha1"


@dataclass(frozen=True)
class Resource:
    """One kind of object that lives in namespaces."""

    plural: str
    kind: str
    api_version: str

    def path(self, namespace: str, name: str | None = None, part: str | None = None) -> str:
        """Return the path of the collection, of one object, or of a part of it (`log`)."""
        root = "api" if "/" not in self.api_version else "apis"
        pieces = [root, self.api_version, "namespaces", namespace, self.plural, name, part]
        return "/" + "/".join(piece for piece in pieces if piece)


DIJOBS = Resource("dijobs", "DIJob", DIJOB_API)
PODS = Resource("pods", "Pod", "v1")
EVENTS = Resource("events", "Event", "v1")
CONFIG_MAPS = Resource("configmaps", "ConfigMap", "v1")

RAY_API = "ray.io/v1"
RBAC_API = "rbac.authorization.k8s.io/v1"

RAY_CLUSTERS = Resource("rayclusters", "RayCluster", RAY_API)
RAY_JOBS = Resource("rayjobs", "RayJob", RAY_API)
SERVICES = Resource("services", "Service", "v1")
ENDPOINTS = Resource("endpoints", "Endpoints", "v1")
SERVICE_ACCOUNTS = Resource("serviceaccounts", "ServiceAccount", "v1")
VOLUME_CLAIMS = Resource("persistentvolumeclaims", "PersistentVolumeClaim", "v1")
DEPLOYMENTS = Resource("deployments", "Deployment", "apps/v1")
ROLES = Resource("roles", "Role", RBAC_API)
ROLE_BINDINGS = Resource("rolebindings", "RoleBinding", RBAC_API)
NETWORK_POLICIES = Resource("networkpolicies", "NetworkPolicy", "networking.k8s.io/v1")
TOKENS = Resource(kind="Secret", api_version="v1", plural="secrets")
