"""Sending a launch to Kubernetes: all of it is checked before any of it is made."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from ditk_ray.cluster.kuberay.cluster_pieces import PIECES, title_of
from ditk_ray.cluster.kuberay.ray_job_health import job_health
from ditk_ray.errors import (
    BadConfigError,
    DitkRayError,
    KubeError,
    KubeNotFoundError,
    KubeUnknownKindError,
    Problem,
)
from ditk_ray.kube.connection import Kube
from ditk_ray.kube.labels import CLUSTER, MANAGED_BY
from ditk_ray.kube.objects import Manifest, Objects
from ditk_ray.kube.resources import RAY_CLUSTERS, RAY_JOBS, ROLE_BINDINGS

_RESOURCES = {resource.kind: resource for resource in PIECES}
_TWINS = {RAY_CLUSTERS.kind: RAY_JOBS, RAY_JOBS.kind: RAY_CLUSTERS}
"""A cluster and a job of one name would share all that stands around them."""


@dataclass(frozen=True)
class Applied:
    """An object that was sent; `outcome` is created, changed or unchanged."""

    kind: str
    name: str
    outcome: str

    def __str__(self) -> str:
        return f"{title_of(self.kind, self.name)} {self.outcome}"


def launch(kube: Kube, manifests: Sequence[Manifest], tell: Callable[[Applied], None]) -> None:
    """Have all objects be as they are given, and call `tell` with each.

    Raises BadConfigError if one would take the place of what is not ours, KubeError if the
    API server would refuse one (nothing is made then), and DitkRayError if one fails all the
    same, with what was made before it.
    """
    orders = [_order(kube, manifest) for manifest in manifests]
    problems = [problem for order in orders for problem in order.problems(kube)]
    if problems:
        raise BadConfigError(problems)
    changes = [order.is_change() for order in orders]
    applied: list[Applied] = []
    for order, is_change in zip(orders, changes, strict=True):
        try:
            applied.append(order.apply(is_change))
        except KubeError as error:
            raise _half(error, applied, order) from error
        tell(applied[-1])


@dataclass(frozen=True)
class _Order:
    """An object as it is to be, and as it is; `there` is None if it is not yet."""

    objects: Objects
    manifest: Manifest
    there: Manifest | None

    @property
    def kind(self) -> str:
        return self.objects.resource.kind

    @property
    def name(self) -> str:
        return str(self.manifest["metadata"]["name"])

    def problems(self, kube: Kube) -> list[Problem]:
        if self.there is not None and not _has_labels_of(self.there, self.manifest):
            what = f"is in namespace {kube.namespace!r} already, and was not made for this cluster"
            return [Problem(title_of(self.kind, self.name), what, "choose another --name")]
        twin = _TWINS.get(self.kind)
        if twin is not None and _found(kube.objects(twin), self.name) is not None:
            what = f"is there: a {self.kind} cannot have the same name"
            return [Problem(title_of(twin.kind, self.name), what, "choose another --name")]
        return []

    def is_change(self) -> bool:
        """Have the API server check it, and tell whether anything would be other than it is.

        A RoleBinding can be checked only by who holds its Role's rights or has made the Role,
        which is not there yet.
        """
        if self.there is None and self.objects.resource == ROLE_BINDINGS:
            return True
        if self.there is not None and self.objects.resource == RAY_JOBS:
            self._require_unfinished(self.there)
        checked = self.objects.apply(self.manifest, is_check=True)
        is_change = self.there is None or _content(checked) != _content(self.there)
        if is_change and self.there is not None and self.objects.resource == RAY_JOBS:
            what = "is there with other settings, and a job does not change while it is there"
            hint = f"`ditk-ray cluster delete {self.name}`, or choose another --name"
            raise BadConfigError(Problem(title_of(self.kind, self.name), what, hint))
        return is_change

    def _require_unfinished(self, there: Manifest) -> None:
        job = job_health(there, datetime.now(UTC))
        if job.is_over:
            what = f"is there, and over ({job.state}): it does not run again"
            hint = f"`ditk-ray cluster delete {self.name}`, which keeps its results, comes first"
            raise BadConfigError(Problem(title_of(self.kind, self.name), what, hint))

    def apply(self, is_change: bool) -> Applied:
        """Send it, unless nothing would change: the server may count that as a change."""
        if is_change:
            self.objects.apply(self.manifest)
        outcome = "changed" if is_change else "unchanged"
        return Applied(self.kind, self.name, "created" if self.there is None else outcome)


def _order(kube: Kube, manifest: Manifest) -> _Order:
    objects = kube.objects(_RESOURCES[manifest["kind"]])
    there = _found(objects, manifest["metadata"]["name"])
    order = _Order(objects, manifest, there)
    if there is not None and objects.resource == RAY_CLUSTERS:
        return replace(order, manifest=keep_sizes(manifest, there))
    return order


def keep_sizes(manifest: Manifest, there: Manifest) -> Manifest:
    """Return a RayCluster with as many workers as its autoscaler has chosen, within its limits.

    The list of groups is replaced as one: without this, sending it again would undo that, and
    forget which workers are just being taken away.
    """
    if not manifest["spec"]["enableInTreeAutoscaling"]:
        return manifest
    known = {
        group["groupName"]: group
        for group in (there.get("spec") or {}).get("workerGroupSpecs") or []
    }
    groups = [
        _as_scaled(group, known.get(group["groupName"], {}))
        for group in manifest["spec"]["workerGroupSpecs"]
    ]
    return {**manifest, "spec": {**manifest["spec"], "workerGroupSpecs": groups}}


def _as_scaled(group: Manifest, there: Manifest) -> Manifest:
    chosen = {key: there[key] for key in ("scaleStrategy",) if key in there}
    return {**group, **chosen, "replicas": _within(group, there.get("replicas"))}


def _within(group: Manifest, size: int | None) -> int:
    wanted = group["replicas"] if size is None else size
    return int(min(max(wanted, group["minReplicas"]), group["maxReplicas"]))


def _found(objects: Objects, name: str) -> Manifest | None:
    try:
        return objects.get(name)
    except (KubeNotFoundError, KubeUnknownKindError):  # of the latter the check will tell
        return None


def _has_labels_of(there: Manifest, manifest: Manifest) -> bool:
    labels, wanted = there["metadata"].get("labels") or {}, manifest["metadata"]["labels"]
    return all(labels.get(key) == wanted[key] for key in (MANAGED_BY, CLUSTER))


def _content(manifest: Manifest) -> Manifest:
    """Return an object without what the server notes about its changes, and how it fares."""
    notes = ("managedFields", "resourceVersion", "generation")
    about = {key: value for key, value in manifest["metadata"].items() if key not in notes}
    return {**manifest, "metadata": about, "status": None}


def _half(error: KubeError, applied: Sequence[Applied], order: _Order) -> DitkRayError:
    made = [str(each) for each in applied if each.outcome != "unchanged"]
    cluster = order.manifest["metadata"]["labels"][CLUSTER]
    told = "nothing was made before that"
    if made:
        told = (
            f"made before that: {', '.join(made)}\n    run the same command again to go on, "
            f"or `ditk-ray cluster delete {cluster} --results` to take it back"
        )
    return DitkRayError(f"{error}\n    {told}")
