"""What costs money while a Ray cluster stands, used or not: in words, from the objects it is of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ditk_ray.cluster.kuberay.ray_cluster import Group, groups_of, is_autoscaled
from ditk_ray.kube.objects import Manifest
from ditk_ray.kube.resources import DEPLOYMENTS, RAY_CLUSTERS, RAY_JOBS, VOLUME_CLAIMS

_MINUTE = 60


@dataclass(frozen=True)
class PodSize:
    """What the containers of a pod ask for; `cpu` is None if one does not say."""

    cpu: float | None
    gpu: int
    memory: str

    def __str__(self) -> str:
        parts = [
            "CPUs that nobody counts" if self.cpu is None else f"{self.cpu:g} CPU",
            f"{self.gpu} GPU" if self.gpu else "",
            self.memory,
        ]
        return ", ".join(filter(None, parts))


def standing_costs(
    cluster: Manifest | None, servers: Iterable[Manifest], claims: Iterable[Manifest]
) -> list[str]:
    """Return a line for each thing that somebody pays for.

    `cluster` is a RayCluster, `servers` are the Deployments beside it.
    """
    lines = [] if cluster is None else _nodes(cluster)
    lines += [f"its MLflow server: {pod_size(each['spec']['template'])}" for each in servers]
    stored = sorted(claim_text(each) for each in claims)
    if stored:
        lines.append(f"storage, which stays when the cluster is deleted: {'; '.join(stored)}")
    return lines


def launch_costs(manifests: Iterable[Manifest]) -> list[str]:
    """Return the same of what a launch sends, or the run of a job."""
    by_kind: dict[str, list[Manifest]] = {}
    for manifest in manifests:
        by_kind.setdefault(manifest["kind"], []).append(manifest)
    jobs = [{"spec": job["spec"]["rayClusterSpec"]} for job in by_kind.get(RAY_JOBS.kind, [])]
    clusters = [*by_kind.get(RAY_CLUSTERS.kind, []), *jobs]
    return standing_costs(
        clusters[0] if clusters else None,
        by_kind.get(DEPLOYMENTS.kind, []),
        by_kind.get(VOLUME_CLAIMS.kind, []),
    )


def present_size(cluster: Manifest) -> str:
    """Return what the pods of a RayCluster that are wanted now ask for; empty if one is silent."""
    head = pod_size(cluster["spec"]["headGroupSpec"]["template"])
    pods = [(head, 1), *((size, group.desired) for group, size in _workers(cluster))]
    cpus = [(size.cpu, many) for size, many in pods if many]
    gpus = sum(size.gpu * many for size, many in pods)
    total = sum(cpu * many for cpu, many in cpus if cpu is not None)
    if any(cpu is None for cpu, _ in cpus):
        return ""
    return f"{total:g} CPU, {gpus} GPU" if gpus else f"{total:g} CPU"


def pod_size(template: Mapping[str, Any]) -> PodSize:
    """Return what a pod of a template asks for."""
    asked = [_asked(container) for container in template["spec"]["containers"]]
    cpus = [_cpus(str(each.get("cpu", ""))) for each in asked]
    known = [cpu for cpu in cpus if cpu is not None]
    memory = [str(each["memory"]) for each in asked if "memory" in each]
    gpus = [int(many) for each in asked for name, many in each.items() if name.endswith("/gpu")]
    total = sum(known) if len(known) == len(cpus) else None
    return PodSize(total, sum(gpus), " + ".join(memory))


def claim_text(claim: Manifest) -> str:
    """Return a claim's name and how much it asks for."""
    return f"{claim['metadata']['name']}, {claim['spec']['resources']['requests']['storage']}"


def _nodes(cluster: Manifest) -> list[str]:
    spec = cluster["spec"]
    idle = ""
    if is_autoscaled(cluster):
        seconds = (spec.get("autoscalerOptions") or {}).get("idleTimeoutSeconds", _MINUTE)
        idle = f" (those without work leave after {seconds / _MINUTE:g} minutes)"
    lines = [f"its head: {pod_size(spec['headGroupSpec']['template'])}"]
    for group, size in _workers(cluster):
        can_leave = is_autoscaled(cluster) and group.least != group.most
        lines.append(f"{_many(group, can_leave)}: {size} each{idle if can_leave else ''}")
    return lines


def _many(group: Group, is_changing: bool) -> str:
    if not is_changing:
        return f"{group.desired} workers of group {group.name!r}"
    limits = f"{group.least} to {group.most} workers of group {group.name!r}"
    return f"{limits}, {group.desired} of them now"


def _workers(cluster: Manifest) -> Sequence[tuple[Group, PodSize]]:
    specs = cluster["spec"].get("workerGroupSpecs") or []
    sizes = [pod_size(spec["template"]) for spec in specs]
    return list(zip(groups_of(cluster), sizes, strict=True))


def _asked(container: Mapping[str, Any]) -> dict[str, Any]:
    """Return a container's requests; what it only limits, it asks for as well."""
    resources = container.get("resources") or {}
    return {**(resources.get("limits") or {}), **(resources.get("requests") or {})}


def _cpus(text: str) -> float | None:
    """Return a number of CPUs as Kubernetes writes it: `2`, `0.5` or `500m`; None if it is none."""
    try:
        return float(text.removesuffix("m")) / 1000 if text.endswith("m") else float(text)
    except ValueError:
        return None
