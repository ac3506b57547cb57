"""Whether a Ray cluster on Kubernetes is ready, and why not, from the API server's objects."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from ditk_ray.cluster.kuberay.ray_cluster import (
    DASHBOARD,
    MLFLOW,
    POD_GROUP,
    POD_NODE_TYPE,
    groups_of,
    has,
    head_service,
    is_autoscaled,
    is_suspended,
    mlflow_service,
    name_of,
    service_url,
    status_of,
    token_secret,
)
from ditk_ray.cluster.kuberay.standing_costs import present_size
from ditk_ray.cluster.kuberay.troubles import (
    Trouble,
    pod_trouble,
    troubles_of_cluster,
    troubles_of_pods,
    with_hint,
)
from ditk_ray.kube.ages import age_of
from ditk_ray.kube.objects import Manifest
from ditk_ray.kube.pod_reasons import warnings_about

_WARNINGS_TOLD = 3


class State(StrEnum):
    """How a cluster stands, in a word."""

    READY = "Ready"
    STARTING = "Starting"
    DEGRADED = "Degraded"
    """It was ready once, and something of it is missing now."""
    SUSPENDED = "Suspended"
    FAILED = "Failed"
    DELETING = "Deleting"


@dataclass(frozen=True)
class Workers:
    """How many workers there are, are wanted, and may be."""

    ready: int
    desired: int
    least: int
    most: int

    def __str__(self) -> str:
        return f"{self.ready}/{self.desired} ({self.least}-{self.most})"


@dataclass(frozen=True)
class GroupHealth:
    """One group of workers."""

    name: str
    workers: Workers


@dataclass(frozen=True)
class PodHealth:
    """One pod: `group` is `head`, `mlflow`, or a group of workers."""

    name: str
    group: str
    phase: str
    is_ready: bool
    node: str
    age: float
    why: str


@dataclass(frozen=True)
class Health:
    """How a cluster stands. `why` is empty if it is ready; addresses are those inside Kubernetes.

    `job_address` is None while there is no Service of the head, `mlflow_uri` if the cluster
    has no MLflow, `token_secret` if no token guards it. `size` is what its pods ask for now.
    """

    name: str
    namespace: str
    state: State
    is_ready: bool
    why: str
    workers: Workers
    size: str
    groups: tuple[GroupHealth, ...]
    pods: tuple[PodHealth, ...]
    age: float
    job_address: str | None
    mlflow_uri: str | None
    token_secret: str | None
    problems: tuple[Trouble, ...]


@dataclass(frozen=True)
class Seen:
    """What the API server has about one cluster; Services and Endpoints by their names."""

    cluster: Manifest
    pods: Sequence[Manifest]
    mlflow_pods: Sequence[Manifest]
    services: Mapping[str, Manifest]
    endpoints: Mapping[str, Manifest]
    warnings: Sequence[Manifest] = ()

    def serves(self, service: str) -> bool:
        """Tell whether a Service leads to a pod that is ready."""
        subsets = (self.endpoints.get(service) or {}).get("subsets") or []
        return any(subset.get("addresses") for subset in subsets)


def health_of(seen: Seen, now: datetime) -> Health:
    """Judge a cluster by what is there of it."""
    cluster, age = seen.cluster, age_of(seen.cluster, now)
    groups = _groups(seen)
    workers = _sum(group.workers for group in groups)
    missing = _missing(seen, workers)
    is_ready = not missing
    problems = [] if is_ready else _problems(seen, age)
    services = seen.services
    head, mlflow = services.get(head_service(cluster)), services.get(mlflow_service(cluster))
    return Health(
        name=name_of(cluster),
        namespace=cluster["metadata"]["namespace"],
        state=_state(cluster, is_ready),
        is_ready=is_ready,
        why=problems[0].what if problems else missing,
        workers=workers,
        size="" if is_suspended(cluster) else present_size(cluster),
        groups=tuple(groups),
        pods=tuple(_pod(pod, now) for pod in (*seen.pods, *seen.mlflow_pods)),
        age=age,
        job_address=service_url(head, DASHBOARD) if head else None,
        mlflow_uri=service_url(mlflow, MLFLOW) if mlflow else None,
        token_secret=token_secret(cluster),
        problems=tuple(problems),
    )


def is_pod_ready(pod: Manifest) -> bool:
    """Tell whether a pod does its work, and will go on."""
    conditions = pod.get("status", {}).get("conditions") or []
    is_up = any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
    return is_up and "deletionTimestamp" not in pod["metadata"]


def _missing(seen: Seen, workers: Workers) -> str:
    """Return what a cluster lacks of being ready; empty if nothing."""
    cluster, head, mlflow = seen.cluster, head_service(seen.cluster), mlflow_service(seen.cluster)
    needed = workers.least if is_autoscaled(cluster) else workers.desired
    if "deletionTimestamp" in cluster["metadata"]:
        return "it is being deleted"
    if is_suspended(cluster):
        return "it is suspended"
    if not any(is_pod_ready(pod) for pod in seen.pods if _label(pod, POD_NODE_TYPE) == "head"):
        return "its head is not ready"
    if not seen.serves(head):
        return f"the Service {head} does not lead to its head yet"
    if workers.ready < needed:
        return f"{workers.ready} of {needed} workers are ready"
    if mlflow in seen.services and not seen.serves(mlflow):
        return "its MLflow is not ready"
    return ""


def _problems(seen: Seen, age: float) -> list[Trouble]:
    """Return what is wrong: as KubeRay says, as the pods say, or else as events say."""
    pods = [*seen.pods, *seen.mlflow_pods]
    found = [*troubles_of_cluster(seen.cluster, age), *troubles_of_pods(pods)]
    if found:
        return found
    names = [name_of(seen.cluster), *(pod["metadata"]["name"] for pod in pods)]
    return [with_hint(text) for text in warnings_about(seen.warnings, names)[:_WARNINGS_TOLD]]


def _state(cluster: Manifest, is_ready: bool) -> State:
    if is_ready:
        return State.READY
    if "deletionTimestamp" in cluster["metadata"]:
        return State.DELETING
    if is_suspended(cluster):
        return State.SUSPENDED
    if has(cluster, "RayClusterReplicaFailure") or status_of(cluster).get("state") == "failed":
        return State.FAILED
    return State.DEGRADED if has(cluster, "RayClusterProvisioned") else State.STARTING


def _groups(seen: Seen) -> list[GroupHealth]:
    ready = [_label(pod, POD_GROUP) for pod in seen.pods if is_pod_ready(pod) and _is_worker(pod)]
    return [
        GroupHealth(
            group.name, Workers(ready.count(group.name), group.desired, group.least, group.most)
        )
        for group in groups_of(seen.cluster)
    ]


def _sum(parts: Iterable[Workers]) -> Workers:
    given = list(parts)
    return Workers(
        ready=sum(each.ready for each in given),
        desired=sum(each.desired for each in given),
        least=sum(each.least for each in given),
        most=sum(each.most for each in given),
    )


def _pod(pod: Manifest, now: datetime) -> PodHealth:
    is_head = _label(pod, POD_NODE_TYPE) == "head"
    return PodHealth(
        name=pod["metadata"]["name"],
        group="head" if is_head else _label(pod, POD_GROUP) or "mlflow",
        phase=str(pod.get("status", {}).get("phase", "")),
        is_ready=is_pod_ready(pod),
        node=str(pod.get("spec", {}).get("nodeName") or ""),
        age=age_of(pod, now),
        why=pod_trouble(pod),
    )


def _is_worker(pod: Manifest) -> bool:
    return _label(pod, POD_NODE_TYPE) == "worker"


def _label(pod: Manifest, key: str) -> str:
    return str((pod["metadata"].get("labels") or {}).get(key, ""))
