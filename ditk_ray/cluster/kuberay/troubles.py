"""What keeps a Ray cluster from being ready, in Kubernetes' own words, and what to do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ditk_ray.cluster.kuberay.ray_cluster import QUEUE, condition_of, has, is_suspended, status_of
from ditk_ray.kube.ages import show_age
from ditk_ray.kube.objects import Manifest
from ditk_ray.kube.pod_reasons import why_dead, why_waiting

PATIENCE_WITH_OPERATOR = 30.0
"""So many seconds KubeRay may take to look at a new cluster."""

CHECK_HINT = "is KubeRay's operator installed and running? `ditk-ray cluster check` looks"


@dataclass(frozen=True)
class Trouble:
    """What is wrong, and how to mend it; the hint may be empty."""

    what: str
    hint: str = ""


# By words that Kubernetes itself uses for a reason, of which none is part of another.
_HINTS = {
    "Unschedulable": "no node has room for it: launch fewer or smaller workers, or see to it "
    "that such nodes can be had (node pool, accelerator, quota of the cloud)",
    "exceeded quota": "the namespace's quota is used up: launch fewer or smaller workers, delete "
    "what is not needed (`ditk-ray cluster list`), or ask for more",
    "ImagePull": "is the image's name right, is it there, and may this cluster pull it?",
    "InvalidImageName": "give a whole image name, such as HOST/NAME:TAG",
    "CrashLoopBackOff": "the log tells more: `kubectl logs POD --previous`",
    "CreateContainerConfigError": "a ConfigMap or Secret that it names is missing",
    "FailedMount": "a volume cannot be mounted: is its claim bound?",
    "more memory than its limit": "give it more memory",
}


def troubles_of_cluster(cluster: Manifest, age: float) -> list[Trouble]:
    """Return what KubeRay, or its silence, says against a cluster."""
    if is_suspended(cluster):
        return [_suspension(cluster)]
    status = status_of(cluster)
    if not status:
        if age < PATIENCE_WITH_OPERATOR:
            return []
        return [Trouble(f"nothing has looked at it in {show_age(age)}", CHECK_HINT)]
    said: list[Mapping[str, Any]] = []
    if has(cluster, "RayClusterReplicaFailure"):
        said.append(condition_of(cluster, "RayClusterReplicaFailure") or {})
    elif status.get("state") == "failed" or status.get("reason"):
        said.append({"message": status.get("reason")})
    return [with_hint(f"KubeRay: {_sentence(each)}") for each in said]


def troubles_of_pods(pods: Iterable[Manifest]) -> list[Trouble]:
    """Return what is wrong with pods; what is wrong with many alike is told once."""
    alike: dict[str, list[str]] = {}
    for pod in pods:
        why = pod_trouble(pod)
        if why:
            name = str(pod["metadata"]["name"])
            alike.setdefault(why.replace(name, "{}", 1), []).append(name)
    return [with_hint(text.replace("{}", _named(names), 1)) for text, names in alike.items()]


def pod_trouble(pod: Manifest) -> str:
    """Return what is wrong with a pod; empty if nothing is known to be."""
    waiting = why_waiting(pod)
    if waiting:
        return waiting + _last_end(pod)
    death = why_dead(pod)
    return death.text if death else ""


def with_hint(text: str) -> Trouble:
    """Return a trouble with what helps against its kind."""
    hint = next((hint for words, hint in _HINTS.items() if words in text), "")
    return Trouble(" ".join(text.split()), hint)


def _suspension(cluster: Manifest) -> Trouble:
    queue = (cluster["metadata"].get("labels") or {}).get(QUEUE)
    if queue:
        hint = f"it waits for its turn and for quota: `kubectl describe localqueue {queue}`"
        return Trouble(f"it is suspended: Kueue has not admitted it from queue {queue!r}", hint)
    return Trouble("it is suspended", "its `spec.suspend` has to be false for it to run")


def _last_end(pod: Manifest) -> str:
    """Return how a container that is started again and again has ended last."""
    for each in pod.get("status", {}).get("containerStatuses") or []:
        end = (each.get("lastState") or {}).get("terminated")
        if end:
            reason = f" ({end['reason']})" if end.get("reason") not in (None, "Error") else ""
            return (
                f"; it ended {each.get('restartCount', 0)} times, the last time with exit "
                f"code {end.get('exitCode', 0)}{reason}"
            )
    return ""


def _named(names: list[str]) -> str:
    others = len(names) - 1
    return f"{names[0]} (and {others} like it)" if others else names[0]


def _sentence(said: Mapping[str, Any]) -> str:
    parts = (str(said.get("reason") or ""), str(said.get("message") or "").strip())
    return ": ".join(filter(None, parts)) or "it failed, and no reason is given"
