"""What stands between a user and a working Ray cluster, before one is launched."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from ditk_ray.cluster.kuberay.needed_rights import looking_rights, making_rights
from ditk_ray.errors import (
    KubeError,
    KubeForbiddenError,
    KubeNotFoundError,
    KubeUnknownKindError,
)
from ditk_ray.kube.access import (
    Right,
    is_allowed,
    list_everywhere,
    served_resources,
    server_version,
)
from ditk_ray.kube.connection import Kube
from ditk_ray.kube.objects import Manifest
from ditk_ray.kube.resources import PODS, RAY_API, RAY_CLUSTERS, RAY_JOBS, Resource

NODES = Resource("nodes", "Node", "v1")
STORAGE_CLASSES = Resource("storageclasses", "StorageClass", "storage.k8s.io/v1")
LOCAL_QUEUES = Resource("localqueues", "LocalQueue", "kueue.x-k8s.io/v1beta1")

GPU = "nvidia.com/gpu"
_OPERATOR = "app.kubernetes.io/component=kuberay-operator"
_RAY_INSTALL = (
    "install KubeRay: `helm repo add kuberay https://ray-project.github.io/kuberay-helm && "
    "helm install kuberay-operator kuberay/kuberay-operator`, or the Ray add-on of GKE"
)
# A StorageClass does not say whether many nodes may write; these provisioners let them.
_SHARED = ("filestore.csi", "efs.csi", "file.csi.azure", "nfs", "cephfs", "longhorn", "glusterfs")


class Verdict(StrEnum):
    """How something stands. What is unknown may be as it should."""

    OK = "ok"
    MISSING = "missing"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at, what was found, and what to do if it is not there."""

    about: str
    verdict: Verdict
    text: str
    hint: str = ""


def check_cluster(kube: Kube, queue: str | None = None) -> Iterator[Finding]:
    """Look at all that a Ray cluster needs, one thing after the other.

    Without an answer of the API server it ends after that.
    """
    try:
        text = f"Kubernetes {server_version(kube)} at {kube.host}"
    except KubeError as error:
        yield Finding("API server", Verdict.MISSING, *_halves(error))
        return
    yield Finding("API server", Verdict.OK, text)
    yield _kuberay(kube)
    yield _operator(kube)
    yield _rights(kube, "rights to look", looking_rights())
    yield _rights(kube, "rights to launch", making_rights())
    yield _listed(kube, "storage", STORAGE_CLASSES, _storage)
    yield _listed(kube, "GPUs", NODES, _gpus)
    if queue:
        yield _queue(kube, queue)


def _kuberay(kube: Kube) -> Finding:
    served = served_resources(kube, RAY_API)
    missing = {RAY_CLUSTERS.plural, RAY_JOBS.plural} - served
    if not missing:
        return Finding("KubeRay", Verdict.OK, f"{RAY_API} is served")
    text = f"{RAY_API} has no {' and no '.join(sorted(missing))}"
    return Finding("KubeRay", Verdict.MISSING, text, _RAY_INSTALL)


def _operator(kube: Kube) -> Finding:
    """Look for the operator's pod, or else for traces of its work in the namespace."""
    about = "KubeRay's operator"
    try:
        pods = list_everywhere(kube, PODS, _OPERATOR)
    except KubeForbiddenError:
        return _traces(kube, about)
    alive = [pod for pod in pods if pod.get("status", {}).get("phase") == "Running"]
    if alive:
        place = alive[0]["metadata"]
        return Finding(about, Verdict.OK, f"pod {place['name']} in {place['namespace']!r} runs")
    traces = _traces(kube, about)  # a cloud may run it where nobody sees it
    if not pods and traces.verdict is Verdict.OK:
        return traces
    text = f"{len(pods)} pods of it, and none runs" if pods else "no pod of it anywhere"
    return Finding(about, Verdict.MISSING, text, _RAY_INSTALL)


def _traces(kube: Kube, about: str) -> Finding:
    try:
        clusters = kube.objects(RAY_CLUSTERS).list()
    except (KubeForbiddenError, KubeUnknownKindError):
        clusters = []
    if any(each.get("status") for each in clusters):
        return Finding(about, Verdict.OK, "it has looked at RayClusters of this namespace")
    return Finding(
        about, Verdict.UNKNOWN, "its pod may not be seen", "the first launch will tell, or an admin"
    )


def _rights(kube: Kube, about: str, needed: list[Right]) -> Finding:
    missing = [right for right in needed if not is_allowed(kube, right)]
    place = f"in namespace {kube.namespace!r}"
    if not missing:
        return Finding(about, Verdict.OK, f"all {len(needed)} {place}")
    by_resource: dict[str, list[str]] = {}
    for right in missing:
        by_resource.setdefault(right.resource, []).append(right.verb)
    told = "; ".join(f"{', '.join(verbs)} {name}" for name, verbs in by_resource.items())
    hint = "an admin can apply cluster_configs/cluster_rbac.yaml"
    return Finding(about, Verdict.MISSING, f"{place} you may not {told}", hint)


def _listed(
    kube: Kube, about: str, resource: Resource, judge: Callable[[list[Manifest]], Finding]
) -> Finding:
    try:
        return judge(list_everywhere(kube, resource))
    except KubeForbiddenError:
        text = f"{resource.plural} may not be listed"
        return Finding(about, Verdict.UNKNOWN, text, "an admin can tell; nothing else needs it")


def _storage(classes: list[Manifest]) -> Finding:
    hint = "the results need a claim that many nodes write to (ReadWriteMany)"
    names = {each["metadata"]["name"]: str(each.get("provisioner", "")) for each in classes}
    shared = [name for name, maker in names.items() if any(word in maker for word in _SHARED)]
    if shared:
        return Finding("storage", Verdict.OK, f"ReadWriteMany by {', '.join(sorted(shared))}")
    if not names:
        return Finding("storage", Verdict.MISSING, "there is no StorageClass", hint)
    text = f"none of {', '.join(sorted(names))} is known to do ReadWriteMany"
    return Finding("storage", Verdict.UNKNOWN, text, hint)


def _gpus(nodes: list[Manifest]) -> Finding:
    counts = [int((each.get("status", {}).get("allocatable") or {}).get(GPU, 0)) for each in nodes]
    having = [count for count in counts if count]
    if having:
        text = f"{sum(having)} on {len(having)} of {len(nodes)} nodes"
        return Finding("GPUs", Verdict.OK, text)
    text = f"none on {len(nodes)} nodes just now"
    return Finding("GPUs", Verdict.UNKNOWN, text, "a node pool that starts at zero may add some")


def _queue(kube: Kube, name: str) -> Finding:
    if LOCAL_QUEUES.plural not in served_resources(kube, LOCAL_QUEUES.api_version):
        text = f"{LOCAL_QUEUES.api_version} is not served"
        return Finding("Kueue", Verdict.MISSING, text, "install Kueue, or launch without --queue")
    try:
        kube.objects(LOCAL_QUEUES).get(name)
    except KubeForbiddenError as error:
        return Finding("Kueue", Verdict.UNKNOWN, *_halves(error))
    except KubeNotFoundError:
        text = f"namespace {kube.namespace!r} has no LocalQueue {name!r}"
        return Finding("Kueue", Verdict.MISSING, text, "`kubectl get localqueues` lists those here")
    return Finding("Kueue", Verdict.OK, f"the LocalQueue {name!r} is there")


def _halves(error: KubeError) -> tuple[str, str]:
    first, _, rest = str(error).partition("\n")
    return first, " ".join(rest.split())
