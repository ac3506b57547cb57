"""Whether Ray clusters and RayJobs are well, and why not, from the API server's objects.

What is wrong is said in Kubernetes' own words, with what to do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Any

from ditk_ray.kube.objects import Manifest, age_of, show_age
from ditk_ray.kube.pods import sentence, warnings_about, why_dead, why_waiting
from ditk_ray.kuberay import ray_cluster

_PATIENCE_WITH_OPERATOR = 30.0  # seconds for KubeRay to look at a new cluster
_CHECK_HINT = "is KubeRay's operator installed and running? `ditk-ray cluster check` looks"


@dataclass(frozen=True)
class Trouble:
    """What is wrong, and how to mend it; the hint may be empty."""

    what: str
    hint: str = ""


class State(StrEnum):
    """How a cluster stands, in a word; a degraded one was ready once, and lacks something now."""

    READY = "Ready"
    STARTING = "Starting"
    DEGRADED = "Degraded"
    SUSPENDED = "Suspended"
    FAILED = "Failed"
    DELETING = "Deleting"


@dataclass(frozen=True)
class Health:
    """How a cluster stands. `why` is empty if it is ready; addresses are those inside Kubernetes.

    `job_address` is None while there is no Service of the head, `mlflow_uri` if the cluster
    has no MLflow, `token_secret` if no token guards it. `size` is what its pods ask for now. Of a
    pod, `group` is `head`, `mlflow`, or a group of workers.
    """

    name: str
    namespace: str
    state: State
    is_ready: bool
    why: str
    workers: ray_cluster.Workers
    size: str
    groups: tuple[ray_cluster.Workers, ...]
    pods: tuple[dict[str, Any], ...]
    age: float
    job_address: str | None
    mlflow_uri: str | None
    token_secret: str | None
    problems: tuple[Trouble, ...]


@dataclass(frozen=True)
class Seen:
    """What the API server has about one cluster; Services and Endpoints by their names."""

    cluster: ray_cluster.RayCluster
    pods: Sequence[Manifest]
    services: Mapping[str, Manifest]
    endpoints: Mapping[str, Manifest]
    warnings: Sequence[Manifest] = ()

    def serves(self, service: str) -> bool:
        subsets = (self.endpoints.get(service) or {}).get("subsets") or []
        return any(subset.get("addresses") for subset in subsets)


def health_of(seen: Seen, now: datetime) -> Health:
    cluster, age = seen.cluster, age_of(seen.cluster.manifest, now)
    ready = [_label(pod, ray_cluster.POD_GROUP) for pod in seen.pods if _is_pod_ready(pod)]
    groups = [replace(group, ready=ready.count(group.name)) for group in cluster.groups]
    workers = ray_cluster.all_workers(groups)
    state, missing = _standing(seen, workers)
    problems = _problems(seen, age) if missing else []
    head = seen.services.get(cluster.head_service)
    mlflow = seen.services.get(cluster.mlflow_service)
    return Health(
        name=cluster.name,
        namespace=cluster.manifest["metadata"]["namespace"],
        state=state,
        is_ready=state is State.READY,
        why=problems[0].what if problems else missing,
        workers=workers,
        size="" if cluster.is_suspended else cluster.size,
        groups=tuple(groups),
        pods=tuple(_pod(pod, now) for pod in seen.pods),
        age=age,
        job_address=ray_cluster.service_url(head, ray_cluster.DASHBOARD) if head else None,
        mlflow_uri=ray_cluster.service_url(mlflow, ray_cluster.MLFLOW) if mlflow else None,
        token_secret=cluster.token_secret,
        problems=tuple(problems),
    )


def _is_pod_ready(pod: Manifest) -> bool:
    conditions = pod.get("status", {}).get("conditions") or []
    is_up = any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
    return is_up and "deletionTimestamp" not in pod["metadata"]


def _standing(seen: Seen, workers: ray_cluster.Workers) -> tuple[State, str]:
    cluster = seen.cluster
    if "deletionTimestamp" in cluster.manifest["metadata"]:
        return State.DELETING, "it is being deleted"
    if cluster.is_suspended:
        return State.SUSPENDED, "it is suspended"
    missing = _missing(seen, workers)
    if not missing:
        return State.READY, ""
    has_failed = cluster.status.get("state") == "failed"
    if has_failed or cluster.condition("RayClusterReplicaFailure"):
        return State.FAILED, missing
    was_whole = cluster.condition("RayClusterProvisioned")
    return State.DEGRADED if was_whole else State.STARTING, missing


def _missing(seen: Seen, workers: ray_cluster.Workers) -> str:
    head, mlflow = seen.cluster.head_service, seen.cluster.mlflow_service
    needed = workers.least if seen.cluster.is_autoscaled else workers.desired
    if not any(
        _is_pod_ready(pod) for pod in seen.pods if _label(pod, ray_cluster.POD_NODE_TYPE) == "head"
    ):
        return "its head is not ready"
    if not seen.serves(head):
        return f"the Service {head} does not lead to its head yet"
    if workers.ready < needed:
        return f"{workers.ready} of {needed} workers are ready"
    if mlflow in seen.services and not seen.serves(mlflow):
        return "its MLflow is not ready"
    return ""


def _problems(seen: Seen, age: float) -> list[Trouble]:
    found = [*_troubles_of_cluster(seen.cluster, age), *_troubles_of_pods(seen.pods)]
    if found:
        return found
    names = [seen.cluster.name, *(pod["metadata"]["name"] for pod in seen.pods)]
    return [_with_hint(text) for text in warnings_about(seen.warnings, names)[:3]]


def _pod(pod: Manifest, now: datetime) -> dict[str, Any]:
    is_head = _label(pod, ray_cluster.POD_NODE_TYPE) == "head"
    phase = str(pod.get("status", {}).get("phase", ""))
    return {
        "name": pod["metadata"]["name"],
        "group": "head" if is_head else _label(pod, ray_cluster.POD_GROUP) or "mlflow",
        "state": "Ready" if _is_pod_ready(pod) else phase,
        "node": str(pod.get("spec", {}).get("nodeName") or ""),
        "age": age_of(pod, now),
        "why": _pod_trouble(pod),
    }


def _label(pod: Manifest, key: str) -> str:
    return str((pod["metadata"].get("labels") or {}).get(key, ""))


# By words that Kubernetes itself uses for a reason, none of which is part of another.
_HINTS = {
    "Unschedulable": "no node has room for it: launch fewer or smaller workers, or make "
    "such nodes available (node pool, accelerator, quota of the cloud)",
    "exceeded quota": "the namespace's quota is used up: launch fewer or smaller workers, delete "
    "what is not needed (`ditk-ray cluster list`), or ask for more",
    "ImagePull": "is the image's name right, does it exist, and may this cluster pull it?",
    "InvalidImageName": "give a whole image name, such as HOST/NAME:TAG",
    "CrashLoopBackOff": "see the log: `kubectl logs POD --previous`",
    "CreateContainerConfigError": "a ConfigMap or Secret that it names is missing",
    "FailedMount": "a volume cannot be mounted: is its claim bound?",
    "more memory than its limit": "give it more memory",
}


def _troubles_of_cluster(cluster: ray_cluster.RayCluster, age: float) -> list[Trouble]:
    if cluster.is_suspended:
        if queue := cluster.labels.get(ray_cluster.QUEUE):
            what = f"it is suspended: Kueue has not admitted it from queue {queue!r}"
            hint = f"it waits for its turn and for quota: `kubectl describe localqueue {queue}`"
            return [Trouble(what, hint)]
        return [Trouble("it is suspended", "its `spec.suspend` has to be false for it to run")]
    status = cluster.status
    if not status:
        what = f"the KubeRay operator has not processed it for {show_age(age)}"
        return [Trouble(what, _CHECK_HINT)] if age >= _PATIENCE_WITH_OPERATOR else []
    failure = cluster.condition("RayClusterReplicaFailure")
    if failure is None and (status.get("state") == "failed" or status.get("reason")):
        failure = {"message": status.get("reason")}
    return [_with_hint(f"KubeRay: {sentence(failure, 'it failed')}")] if failure else []


def _troubles_of_pods(pods: Iterable[Manifest]) -> list[Trouble]:
    alike: dict[str, list[str]] = {}
    for pod in pods:
        if why := _pod_trouble(pod):
            name = str(pod["metadata"]["name"])
            alike.setdefault(why.replace(name, "{}", 1), []).append(name)
    found = []
    for text, names in alike.items():
        others = f" (and {len(names) - 1} like it)" if len(names) > 1 else ""
        found.append(_with_hint(text.replace("{}", names[0] + others, 1)))
    return found


def _pod_trouble(pod: Manifest) -> str:
    if waiting := why_waiting(pod):
        return waiting + _last_end(pod)
    death = why_dead(pod)
    return death.text if death else ""


def _with_hint(text: str) -> Trouble:
    hint = next((hint for words, hint in _HINTS.items() if words in text), "")
    return Trouble(" ".join(text.split()), hint)


def _last_end(pod: Manifest) -> str:
    for each in pod.get("status", {}).get("containerStatuses") or []:
        end = (each.get("lastState") or {}).get("terminated")
        if end:
            reason = f" ({end['reason']})" if end.get("reason") not in (None, "Error") else ""
            return (
                f"; it ended {each.get('restartCount', 0)} times, the last time with exit "
                f"code {end.get('exitCode', 0)}{reason}"
            )
    return ""


_ENDED_BADLY = ("Failed", "ValidationFailed")
_ENDED = ("Complete", *_ENDED_BADLY)
_JOB_FAILED = ("FAILED", "STOPPED")


@dataclass(frozen=True)
class JobHealth:
    """A RayJob: `state` is KubeRay's, `job_status` Ray's, `cluster` where it runs now.

    `is_over` says that nothing becomes of it any more, `is_ok` that nothing has gone wrong.
    """

    name: str
    namespace: str
    state: str
    job_status: str
    cluster: str
    failed: int
    age: float
    is_over: bool
    is_ok: bool
    why: str


def job_health(job: Manifest, now: datetime) -> JobHealth:
    status = job.get("status") or {}
    state = str(status.get("jobDeploymentStatus") or "")
    ended_badly = state in _ENDED_BADLY or status.get("jobStatus") in _JOB_FAILED
    age = age_of(job, now)
    return JobHealth(
        name=job["metadata"]["name"],
        namespace=job["metadata"]["namespace"],
        state=state or "New",
        job_status=str(status.get("jobStatus") or ""),
        cluster=str(status.get("rayClusterName") or ""),
        failed=int(status.get("failed") or 0),
        age=age,
        is_over=state in _ENDED,
        is_ok=not ended_badly,
        why=_why(job, state, age),
    )


def _why(job: Manifest, state: str, age: float) -> str:
    status = job.get("status") or {}
    if job["spec"].get("suspend") and state not in _ENDED:
        return "it is suspended"
    if not state and age >= _PATIENCE_WITH_OPERATOR:
        return f"the KubeRay operator has not processed it for {show_age(age)}: {_CHECK_HINT}"
    if state == "Complete" and status.get("jobStatus") not in _JOB_FAILED:
        return ""
    return " ".join(sentence(status, "").split())
