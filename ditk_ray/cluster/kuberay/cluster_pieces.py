"""The objects that make up the Ray clusters of ours in a namespace: finding and deleting them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ditk_ray.errors import KubeConflictError, KubeNotFoundError, KubeUnknownKindError
from ditk_ray.kube.connection import Kube
from ditk_ray.kube.labels import CLUSTER, MANAGED_BY, MANAGER
from ditk_ray.kube.objects import Manifest
from ditk_ray.kube.resources import (
    DEPLOYMENTS,
    NETWORK_POLICIES,
    RAY_CLUSTERS,
    RAY_JOBS,
    ROLE_BINDINGS,
    ROLES,
    SERVICE_ACCOUNTS,
    SERVICES,
    VOLUME_CLAIMS,
    Resource,
)

PIECES = (
    RAY_JOBS,
    RAY_CLUSTERS,
    DEPLOYMENTS,
    SERVICES,
    ROLE_BINDINGS,
    ROLES,
    SERVICE_ACCOUNTS,
    VOLUME_CLAIMS,
    NETWORK_POLICIES,
)
"""All kinds that a launch makes, in the order of deleting: what has pods first, walls last."""

_LOOK_SECONDS = 1.0
_UNKNOWN_HINT = (
    "    whether Ray clusters stand is unknown, so nothing of them was deleted: try again in a "
    "moment,\n    or say --without_kuberay if KubeRay was uninstalled, and all of them with it"
)


@dataclass(frozen=True)
class Piece:
    """One object of a cluster, and what the API server says of it."""

    resource: Resource
    manifest: Manifest

    @property
    def name(self) -> str:
        """The name of the object."""
        return str(self.manifest["metadata"]["name"])

    @property
    def uid(self) -> str:
        """What no other object has, not even one of the same name."""
        return str(self.manifest["metadata"]["uid"])

    @property
    def cluster(self) -> str:
        """The name of the cluster that it belongs to."""
        return str(self.manifest["metadata"]["labels"][CLUSTER])

    @property
    def title(self) -> str:
        """What it is called in a line of text, as kubectl does it."""
        return title_of(self.resource.kind, self.name)

    @property
    def is_data(self) -> bool:
        """Whether results or records are lost with it."""
        return self.resource == VOLUME_CLAIMS

    @property
    def size(self) -> str:
        """How much a claim asks for; empty for anything else."""
        if not self.is_data:
            return ""
        return str(self.manifest["spec"]["resources"]["requests"]["storage"])


def title_of(kind: str, name: str) -> str:
    """Return an object's kind and name as kubectl prints them."""
    return f"{kind.lower()}/{name}"


def find_pieces(
    kube: Kube, cluster: str | None = None, *, without_kuberay: bool = False
) -> list[Piece]:
    """Return what belongs to a cluster, or to all of ours, in the order of deleting.

    What another object owns is not among it: it goes with its owner, and is made by KubeRay.
    Raises KubeUnknownKindError if the API server does not know KubeRay's kinds, which says
    nothing of the clusters that there are; `without_kuberay` has it mean that there are none.
    """
    chosen = CLUSTER if cluster is None else f"{CLUSTER}={cluster}"
    return [
        Piece(resource, manifest)
        for resource in PIECES
        for manifest in _list(kube, resource, chosen, without_kuberay)
        if not manifest["metadata"].get("ownerReferences")
    ]


def delete_pieces(kube: Kube, pieces: Iterable[Piece], tell: Callable[[Piece], None]) -> None:
    """Delete these very objects, and call `tell` with each that was there."""
    for piece in pieces:
        try:
            kube.objects(piece.resource).delete(piece.name, piece.uid)
        except (KubeNotFoundError, KubeConflictError):
            continue  # somebody else did it, and another may have its name by now
        tell(piece)


def wait_until_gone(
    kube: Kube, pieces: Iterable[Piece], seconds: float, *, without_kuberay: bool = False
) -> list[Piece]:
    """Wait until deleted objects are gone; return those that still stand when time is over.

    `without_kuberay` is as for `find_pieces`.
    """
    left = {piece.uid: piece for piece in pieces}
    end = time.monotonic() + seconds
    while True:
        resources = dict.fromkeys(piece.resource for piece in left.values())
        present = {
            item["metadata"]["uid"]
            for resource in resources
            for item in _list(kube, resource, CLUSTER, without_kuberay)
        }
        left = {uid: piece for uid, piece in left.items() if uid in present}
        if not left or time.monotonic() >= end:
            return list(left.values())
        time.sleep(_LOOK_SECONDS)


def _list(kube: Kube, resource: Resource, labels: str, without_kuberay: bool) -> list[Manifest]:
    """Return those of our objects that have these labels, too."""
    try:
        return kube.objects(resource).list(f"{MANAGED_BY}={MANAGER},{labels}")
    except KubeUnknownKindError as error:
        if without_kuberay:
            return []
        # An API server that has only just started answers so, too, while clusters run.
        raise KubeUnknownKindError(f"{error}\n{_UNKNOWN_HINT}", error.status) from error
