"""What a RayCluster says about itself: its groups, its conditions, its Services, its token."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ditk_ray.kube.labels import CLUSTER
from ditk_ray.kube.objects import Manifest

POD_CLUSTER = "ray.io/cluster"
POD_NODE_TYPE = "ray.io/node-type"
POD_GROUP = "ray.io/group"
"""KubeRay's labels on pods."""

QUEUE = "kueue.x-k8s.io/queue-name"
DATA_KEY = "auth_token"
"""Under which key a Secret has the token of a cluster."""

DASHBOARD = ("dashboard", 8265)
MLFLOW = ("http", 5000)
"""What the ports of the two Services are called, and their usual numbers."""


@dataclass(frozen=True)
class Group:
    """Workers that are alike: how many are wanted now, and between which numbers."""

    name: str
    desired: int
    least: int
    most: int


def name_of(cluster: Manifest) -> str:
    """Return what KubeRay calls the cluster."""
    return str(cluster["metadata"]["name"])


def groups_of(cluster: Manifest) -> list[Group]:
    """Return the groups of workers, counted in pods as KubeRay counts them."""
    return [_group(spec) for spec in cluster["spec"].get("workerGroupSpecs") or []]


def _group(spec: Mapping[str, Any]) -> Group:
    hosts = int(spec.get("numOfHosts") or 1)
    least, most = int(spec.get("minReplicas") or 0), int(spec.get("maxReplicas") or 0)
    wanted = spec.get("replicas")
    desired = least if wanted is None else min(max(int(wanted), least), most)
    if spec.get("suspend"):
        desired = least = 0
    return Group(str(spec.get("groupName", "")), desired * hosts, least * hosts, most * hosts)


def is_autoscaled(cluster: Manifest) -> bool:
    """Tell whether the number of workers follows the work."""
    return bool(cluster["spec"].get("enableInTreeAutoscaling"))


def is_suspended(cluster: Manifest) -> bool:
    """Tell whether it has no pods on purpose."""
    named = ("RayClusterSuspended", "RayClusterSuspending")
    return bool(cluster["spec"].get("suspend")) or any(has(cluster, kind) for kind in named)


def has(cluster: Manifest, condition: str) -> bool:
    """Tell whether a condition holds."""
    found = condition_of(cluster, condition)
    return found is not None and found.get("status") == "True"


def condition_of(cluster: Manifest, kind: str) -> Mapping[str, Any] | None:
    """Return a condition of the status, if KubeRay has set it."""
    conditions = status_of(cluster).get("conditions") or []
    return next((each for each in conditions if each.get("type") == kind), None)


def status_of(cluster: Manifest) -> Mapping[str, Any]:
    """Return what KubeRay says; empty if it has not looked at the cluster yet."""
    return cluster.get("status") or {}


def head_service(cluster: Manifest) -> str:
    """Return the name of the Service of the head, which KubeRay cuts when it is too long."""
    told = (status_of(cluster).get("head") or {}).get("serviceName")
    return str(told or f"{name_of(cluster)}-head-svc")


def launch_name(cluster: Manifest) -> str:
    """Return by which name it was launched: KubeRay names the cluster of a RayJob itself."""
    labels = cluster["metadata"].get("labels") or {}
    return str(labels.get(CLUSTER) or name_of(cluster))


def mlflow_service(cluster: Manifest) -> str:
    """Return the name of the Service of its MLflow, if it has one."""
    return f"{launch_name(cluster)}-mlflow"


def token_secret(cluster: Manifest) -> str | None:
    """Return the name of the Secret with its token; None if it is guarded by none."""
    options = cluster["spec"].get("authOptions") or {}
    if options.get("mode") != "token":
        return None
    return str(options.get("secretName") or name_of(cluster))


def service_url(service: Manifest, port: tuple[str, int]) -> str:
    """Return how a port of a Service is reached from inside Kubernetes."""
    name, usual = port
    given = service["spec"].get("ports") or []
    found = next((each["port"] for each in given if each.get("name") == name), None)
    number = found or (given[0]["port"] if len(given) == 1 else usual)
    about = service["metadata"]
    return f"http://{about['name']}.{about['namespace']}.svc:{number}"


def service_at(url: str) -> str:
    """Return the name of the Service that `service_url` gave this address of."""
    return url.removeprefix("http://").partition(".")[0]
