"""What stands between a user and a working Ray cluster: access, KubeRay, rights and storage."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Literal

from ditk_ray.errors import KubeError, KubeForbiddenError, KubeUnknownKindError
from ditk_ray.kube.connection import Kube, Right, is_allowed, served_resources, server_version
from ditk_ray.kube.objects import PODS, RAY_API, RAY_CLUSTERS, RAY_JOBS, Manifest, Objects, Resource
from ditk_ray.kuberay.manifests import read_template

_STORAGE_CLASSES = Resource("storageclasses", "StorageClass", "storage.k8s.io/v1")
_RAY_INSTALL = (
    "install KubeRay: `helm repo add kuberay https://ray-project.github.io/kuberay-helm && "
    "helm install kuberay-operator kuberay/kuberay-operator`, or the Ray add-on of GKE"
)
# A StorageClass does not say whether many nodes may write; these provisioners let them.
_SHARED = ("filestore.csi", "efs.csi", "file.csi.azure", "nfs", "cephfs", "longhorn", "glusterfs")


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at, what was found, and what to do if it is not there."""

    about: str
    verdict: Literal["ok", "missing", "unknown"]
    text: str
    hint: str = ""


def check_cluster(kube: Kube) -> list[Finding]:
    """Look at all that a Ray cluster needs; without an answer of the API server, at that alone."""
    try:
        text = f"Kubernetes {server_version(kube)} at {kube.host}"
    except KubeError as error:
        first, _, rest = str(error).partition("\n")
        return [Finding("API server", "missing", first, " ".join(rest.split()))]
    return [
        Finding("API server", "ok", text),
        _kuberay(kube),
        _operator(kube),
        _rights(kube),
        _storage(kube),
    ]


def _kuberay(kube: Kube) -> Finding:
    missing = {RAY_CLUSTERS.plural, RAY_JOBS.plural} - served_resources(kube, RAY_API)
    if not missing:
        return Finding("KubeRay", "ok", f"{RAY_API} is served")
    text = f"{RAY_API} has no {' and no '.join(sorted(missing))}"
    return Finding("KubeRay", "missing", text, _RAY_INSTALL)


def _operator(kube: Kube) -> Finding:
    about = "KubeRay's operator"
    pods = _seen(kube, PODS, "app.kubernetes.io/component=kuberay-operator")
    for pod in pods or []:
        if pod.get("status", {}).get("phase") == "Running":
            place = pod["metadata"]
            return Finding(about, "ok", f"pod {place['name']} in {place['namespace']!r} runs")
    if not pods:  # a cloud may run it out of sight: then its work shows
        with contextlib.suppress(KubeForbiddenError, KubeUnknownKindError):
            if any(each.get("status") for each in kube.objects(RAY_CLUSTERS).list()):
                return Finding(about, "ok", "it has processed RayClusters of this namespace")
    if pods is None:
        hint = "the first launch will show it, or ask an admin"
        return Finding(about, "unknown", "no permission to list its pod", hint)
    return Finding(about, "missing", "none of its pods is running", _RAY_INSTALL)


def needed_rights() -> list[Right]:
    """Return what cluster_configs/cluster_rbac.yaml grants, which is what all commands need."""
    _, role, _ = read_template("cluster_rbac.yaml")
    return [
        Right(group, resource, verb)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    ]


def _rights(kube: Kube) -> Finding:
    needed = needed_rights()
    missing: dict[str, list[str]] = {}
    for right in needed:
        if not is_allowed(kube, right):
            missing.setdefault(right.resource, []).append(right.verb)
    if not missing:
        return Finding("rights", "ok", f"all {len(needed)} in namespace {kube.namespace!r}")
    said = "; ".join(f"{', '.join(verbs)} {name}" for name, verbs in missing.items())
    hint = "an admin can apply cluster_configs/cluster_rbac.yaml"
    return Finding("rights", "missing", f"in namespace {kube.namespace!r} you may not {said}", hint)


def _storage(kube: Kube) -> Finding:
    hint = "the results need a claim that many nodes write to (ReadWriteMany)"
    classes = _seen(kube, _STORAGE_CLASSES)
    if classes is None:
        return Finding("storage", "unknown", "no permission to list StorageClasses", hint)
    makers = {each["metadata"]["name"]: str(each.get("provisioner", "")) for each in classes}
    shared = [name for name, maker in makers.items() if any(word in maker for word in _SHARED)]
    if shared:
        return Finding("storage", "ok", f"ReadWriteMany by {', '.join(sorted(shared))}")
    if not makers:
        return Finding("storage", "missing", "there is no StorageClass", hint)
    text = f"none of {', '.join(sorted(makers))} is known to support ReadWriteMany"
    return Finding("storage", "unknown", text, hint)


def _seen(kube: Kube, resource: Resource, labels: str = "") -> list[Manifest] | None:
    try:
        return Objects(kube.http, resource, "").list(labels)
    except KubeForbiddenError:
        return None
