"""What a RayCluster says about itself: groups, conditions, Services, token, size and costs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Any

from ditk_ray.kube.objects import (
    CLUSTER,
    DEPLOYMENTS,
    RAY_CLUSTERS,
    RAY_JOBS,
    VOLUME_CLAIMS,
    Manifest,
)

# KubeRay's labels on pods.
POD_CLUSTER = "ray.io/cluster"
POD_NODE_TYPE = "ray.io/node-type"
POD_GROUP = "ray.io/group"
QUEUE = "kueue.x-k8s.io/queue-name"
DATA_KEY = "auth_token"  # under which a Secret has the token of a cluster
# What the ports of the two Services are called, and their usual numbers.
DASHBOARD = ("dashboard", 8265)
MLFLOW = ("http", 5000)


@dataclass(frozen=True)
class Workers:
    """A group of workers: how many are ready, wanted now, and between which numbers."""

    name: str
    desired: int
    least: int
    most: int
    ready: int = 0

    def __str__(self) -> str:
        return f"{self.ready}/{self.desired} ({self.least}-{self.most})"


def all_workers(groups: Sequence[Workers]) -> Workers:
    counts = [astuple(each)[1:] for each in groups] or [(0, 0, 0, 0)]
    return Workers("all", *map(sum, zip(*counts, strict=True)))


@dataclass(frozen=True)
class RayCluster:
    """A RayCluster as the API server has it."""

    manifest: Manifest

    @property
    def name(self) -> str:
        return str(self.manifest["metadata"]["name"])

    @property
    def labels(self) -> Mapping[str, str]:
        return self.manifest["metadata"].get("labels") or {}

    @property
    def launch_name(self) -> str:
        """By which name it was launched: KubeRay names the cluster of a RayJob itself."""
        return self.labels.get(CLUSTER) or self.name

    @property
    def job_name(self) -> str:
        owners = self.manifest["metadata"].get("ownerReferences") or []
        return next((str(each["name"]) for each in owners if each.get("kind") == "RayJob"), "")

    @property
    def status(self) -> Mapping[str, Any]:
        """What KubeRay says; empty if it has not looked at the cluster yet."""
        return self.manifest.get("status") or {}

    @property
    def groups(self) -> list[Workers]:
        return [_group(spec) for spec in self.manifest["spec"].get("workerGroupSpecs") or []]

    @property
    def is_autoscaled(self) -> bool:
        return bool(self.manifest["spec"].get("enableInTreeAutoscaling"))

    @property
    def is_suspended(self) -> bool:
        kinds = ("RayClusterSuspended", "RayClusterSuspending")
        return bool(self.manifest["spec"].get("suspend")) or any(map(self.condition, kinds))

    def condition(self, kind: str) -> Mapping[str, Any] | None:
        for each in self.status.get("conditions") or []:
            if each.get("type") == kind and each.get("status") == "True":
                return dict(each)
        return None

    @property
    def head_service(self) -> str:
        """The Service of the head, whose name KubeRay cuts when it is too long."""
        reported = (self.status.get("head") or {}).get("serviceName")
        return str(reported or f"{self.name}-head-svc")

    @property
    def mlflow_service(self) -> str:
        return f"{self.launch_name}-mlflow"

    @property
    def token_secret(self) -> str | None:
        """The Secret with its token; None if no token guards it."""
        options = self.manifest["spec"].get("authOptions") or {}
        return (
            str(options.get("secretName") or self.name) if options.get("mode") == "token" else None
        )

    @property
    def size(self) -> str:
        """What the pods that are wanted now ask for; empty if one does not say."""
        spec = self.manifest["spec"]
        groups = zip(spec.get("workerGroupSpecs") or [], self.groups, strict=True)
        pods = [(spec["headGroupSpec"], 1), *((given, group.desired) for given, group in groups)]
        cpus, gpus = 0.0, 0
        for given, many in pods:
            for container in given["template"]["spec"]["containers"] if many else ():
                amounts = container.get("resources") or {}
                # What it only limits, it asks for as well.
                asked = {**(amounts.get("limits") or {}), **(amounts.get("requests") or {})}
                text = str(asked.get("cpu", ""))
                milli = 1000 if text.endswith("m") else 1
                try:
                    cpus += many * float(text.removesuffix("m")) / milli
                except ValueError:
                    return ""
                gpus += many * sum(int(asked[name]) for name in asked if name.endswith("/gpu"))
        return f"{cpus:g} CPU, {gpus} GPU" if gpus else f"{cpus:g} CPU"


def _group(spec: Mapping[str, Any]) -> Workers:
    hosts = int(spec.get("numOfHosts") or 1)
    least, most = int(spec.get("minReplicas") or 0), int(spec.get("maxReplicas") or 0)
    wanted = spec.get("replicas")
    desired = least if wanted is None else min(max(int(wanted), least), most)
    if spec.get("suspend"):
        desired = least = 0
    return Workers(str(spec.get("groupName", "")), desired * hosts, least * hosts, most * hosts)


def service_url(service: Manifest, port: tuple[str, int]) -> str:
    """Return the address of a port of a Service, inside Kubernetes."""
    given = service["spec"].get("ports") or []
    number = next((each["port"] for each in given if each.get("name") == port[0]), port[1])
    about = service["metadata"]
    return f"http://{about['name']}.{about['namespace']}.svc:{number}"


def service_at(url: str) -> str:
    return url.removeprefix("http://").partition(".")[0]


def costs_of(manifests: Iterable[Manifest]) -> str:
    """Return in a line what is billable, used or not; empty if nothing is."""
    pods, servers, stored = "", "", []
    for manifest in manifests:
        kind = manifest["kind"]
        if kind in (RAY_CLUSTERS.kind, RAY_JOBS.kind):
            cluster = RayCluster({"spec": manifest["spec"].get("rayClusterSpec", manifest["spec"])})
            workers = all_workers(cluster.groups)
            limit = f" of at most {workers.most}" if cluster.is_autoscaled else ""
            pods = f"{cluster.size or 'pods'} (head, {workers.desired}{limit} workers)"
        elif kind == DEPLOYMENTS.kind:
            servers = "an MLflow server"
        elif kind == VOLUME_CLAIMS.kind:
            stored.append(claim_text(manifest))
    claims = stored and f"storage, which stays when it is deleted: {', '.join(sorted(stored))}"
    return ", ".join(part for part in (pods, servers, claims) if part)


def claim_text(claim: Manifest) -> str:
    return f"{claim['metadata']['name']} ({claim['spec']['resources']['requests']['storage']})"
