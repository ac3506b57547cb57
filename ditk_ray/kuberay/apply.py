"""Sending, finding and deleting the objects that make up the Ray clusters of ours.

A launch is checked as a whole by the API server before any of it is made.
"""

from __future__ import annotations

import contextlib
import copy
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from ditk_ray.errors import (
    BadConfigError,
    DitkRayError,
    KubeError,
    KubeNotFoundError,
    KubeUnknownKindError,
    Problem,
)
from ditk_ray.kube.connection import Kube
from ditk_ray.kube.objects import (
    CLUSTER,
    DEPLOYMENTS,
    MANAGED_BY,
    MANAGER,
    RAY_CLUSTERS,
    RAY_JOBS,
    ROLE_BINDINGS,
    SERVICES,
    VOLUME_CLAIMS,
    Manifest,
    Objects,
    Piece,
    Resource,
    age_of,
)
from ditk_ray.kuberay.health import job_health

PIECES = (
    RAY_JOBS,
    RAY_CLUSTERS,
    DEPLOYMENTS,
    SERVICES,
    ROLE_BINDINGS,
    Resource("roles", "Role", ROLE_BINDINGS.api_version),
    Resource("serviceaccounts", "ServiceAccount", "v1"),
    VOLUME_CLAIMS,
    Resource("networkpolicies", "NetworkPolicy", "networking.k8s.io/v1"),
)
"""All kinds that a launch makes, in the order of deleting: what has pods first, walls last."""

# A cluster and a job of one name would share all that stands around them.
_TWINS = {RAY_CLUSTERS.kind: RAY_JOBS, RAY_JOBS.kind: RAY_CLUSTERS}
LAUNCH_SECONDS = 600.0  # what is younger may be of a launch, whose RayCluster comes last
_LOOK_SECONDS = 1.0
_UNKNOWN_HINT = (
    "    it is unknown whether Ray clusters exist, so nothing was deleted: try again in a moment,\n"
    "    or use --without_kuberay if KubeRay was uninstalled together with all its clusters"
)


def cluster_of(piece: Piece) -> str:
    return str(piece.manifest["metadata"]["labels"][CLUSTER])


def find_pieces(
    kube: Kube, cluster: str | None = None, *, without_kuberay: bool = False
) -> list[Piece]:
    """Return what belongs to a cluster, or to all of ours, in the order of deleting.

    What another object owns is not among it: it goes with its owner, and is made by KubeRay.
    Raises KubeUnknownKindError if the API server does not know KubeRay's kinds, which says
    nothing of the clusters that there are; `without_kuberay` has it mean that there are none.
    """
    chosen = CLUSTER if cluster is None else f"{CLUSTER}={cluster}"
    found: list[Piece] = []
    for resource in PIECES:
        try:
            listed = kube.objects(resource).list(f"{MANAGED_BY}={MANAGER},{chosen}")
        except KubeUnknownKindError as error:
            if without_kuberay:
                continue
            # An API server that has only just started answers so, too, while clusters run.
            raise KubeUnknownKindError(f"{error}\n{_UNKNOWN_HINT}", error.status) from error
        found += [
            Piece(resource, each) for each in listed if not each["metadata"].get("ownerReferences")
        ]
    return found


def wait_until_gone(
    kube: Kube, pieces: Iterable[Piece], seconds: float, *, without_kuberay: bool = False
) -> list[Piece]:
    """Wait until deleted objects are gone; return those that are left when time is over."""
    left = list(pieces)
    end = time.monotonic() + seconds
    while True:
        there = {piece.uid for piece in find_pieces(kube, without_kuberay=without_kuberay)}
        left = [piece for piece in left if piece.uid in there]
        if not left or time.monotonic() >= end:
            return left
        time.sleep(_LOOK_SECONDS)


def cluster_leftovers(pieces: Iterable[Piece], now: datetime) -> list[tuple[Piece, str]]:
    """Return which pieces no living cluster or job needs, claims among them, and why."""
    found: dict[str, list[Piece]] = {}
    for piece in pieces:
        found.setdefault(cluster_of(piece), []).append(piece)
    return [
        (piece, why)
        for group in found.values()
        if (why := _why_left(group, now))
        for piece in group
    ]


def _why_left(pieces: list[Piece], now: datetime) -> str:
    if any(piece.resource == RAY_CLUSTERS for piece in pieces):
        return ""
    for piece in pieces:
        if piece.resource == RAY_JOBS:
            job = job_health(piece.manifest, now)
            return f"its RayJob is over: {job.state}" if job.is_over else ""
    # Also old pieces may be of a launch that is under way: claims outlive clusters.
    is_young = any(age_of(piece.manifest, now) < LAUNCH_SECONDS for piece in pieces)
    return "" if is_young else "its RayCluster is gone"


def launch(kube: Kube, manifests: Sequence[Manifest], tell: Callable[[str], None]) -> None:
    """Create or change all objects as given, and call `tell` with the outcome of each.

    Raises BadConfigError if one would take the place of what is not ours, KubeError if the
    API server would refuse one (nothing is made then), and DitkRayError if one fails all the
    same; what was made before it was reported.
    """
    orders = [_order(kube, manifest) for manifest in manifests]
    problems = [problem for order in orders for problem in order.problems(kube)]
    if problems:
        raise BadConfigError(problems)
    for order, is_change in [(order, order.is_change()) for order in orders]:
        # Sent for nothing, the server may count it as a change.
        outcome = "unchanged" if not is_change else "changed" if order.there else "created"
        try:
            if is_change:
                order.objects.apply(order.manifest)
        except KubeError as error:
            hint = f"or `ditk-ray cluster delete {cluster_of(order)} --results` to take it back"
            what = f"{error}\n    run the same command again to continue, {hint}"
            raise DitkRayError(what) from error
        tell(f"{order.title} {outcome}")


@dataclass(frozen=True)
class _Order(Piece):
    """An object as it is to be, and as it is; `there` is None if it is not yet."""

    objects: Objects
    there: Manifest | None

    def problems(self, kube: Kube) -> list[Problem]:
        kind = self.resource.kind
        labels = {MANAGED_BY: MANAGER, CLUSTER: cluster_of(self)}
        known = labels if self.there is None else self.there["metadata"].get("labels") or {}
        if not labels.items() <= known.items():
            what = f"is in namespace {kube.namespace!r} already, and was not made for this cluster"
            return [Problem(self.title, what, "choose another --name")]
        twin = _TWINS.get(kind)
        if twin is not None and _found(kube.objects(twin), self.name) is not None:
            what = f"exists; a {kind} cannot use the same name"
            title = Piece(twin, self.manifest).title
            return [Problem(title, what, "choose another --name")]
        if self.there is not None and self.resource == RAY_JOBS:
            job = job_health(self.there, datetime.now(UTC))
            what = f"exists and has finished ({job.state}): it does not run again"
            hint = f"`ditk-ray cluster delete {self.name}`, which keeps its results, comes first"
            return [Problem(self.title, what, hint)] if job.is_over else []
        return []

    def is_change(self) -> bool:
        """Have the API server check it, and return whether it would change anything.

        A RoleBinding can be checked only by who holds its Role's rights or has made the Role,
        which is not there yet.
        """
        if self.there is None and self.resource == ROLE_BINDINGS:
            return True
        checked = self.objects.apply(self.manifest, is_check=True)
        if self.there is None:
            return True
        is_change = _content(checked) != _content(self.there)
        if is_change and self.resource == RAY_JOBS:
            what = "exists with different settings; a RayJob cannot be changed"
            hint = f"`ditk-ray cluster delete {self.name}`, or choose another --name"
            raise BadConfigError(Problem(self.title, what, hint))
        return is_change


def _order(kube: Kube, manifest: Manifest) -> _Order:
    resource = next(each for each in PIECES if each.kind == manifest["kind"])
    objects = kube.objects(resource)
    there = _found(objects, manifest["metadata"]["name"])
    if there is not None and resource == RAY_CLUSTERS:
        manifest = _keep_sizes(manifest, there)
    return _Order(resource, manifest, objects, there)


def _keep_sizes(manifest: Manifest, there: Manifest) -> Manifest:
    """Return a RayCluster with as many workers as its autoscaler has chosen, within its limits.

    The list of groups is replaced as one: without this, sending it again would undo that, and
    forget which workers are just being taken away.
    """
    if not manifest["spec"]["enableInTreeAutoscaling"]:
        return manifest
    known = {group["groupName"]: group for group in there["spec"].get("workerGroupSpecs") or []}
    kept = copy.deepcopy(manifest)
    for group in kept["spec"]["workerGroupSpecs"]:
        scaled = known.get(group["groupName"], {})
        wanted = scaled.get("replicas", group["replicas"])
        group["replicas"] = min(max(wanted, group["minReplicas"]), group["maxReplicas"])
        if "scaleStrategy" in scaled:
            group["scaleStrategy"] = scaled["scaleStrategy"]
    return kept


def _found(objects: Objects, name: str) -> Manifest | None:
    with contextlib.suppress(KubeNotFoundError, KubeUnknownKindError):  # the check reports these
        return objects.get(name)
    return None


def _content(manifest: Manifest) -> Manifest:
    notes = ("managedFields", "resourceVersion", "generation")
    about = {key: value for key, value in manifest["metadata"].items() if key not in notes}
    return {**manifest, "metadata": about, "status": None}
