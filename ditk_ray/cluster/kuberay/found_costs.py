"""Looking for what costs money: of one cluster, and the claims of a whole namespace."""

from __future__ import annotations

from ditk_ray.cluster.kuberay.found_clusters import cluster_object
from ditk_ray.cluster.kuberay.ray_cluster import is_suspended, launch_name
from ditk_ray.cluster.kuberay.standing_costs import standing_costs
from ditk_ray.errors import BadConfigError, KubeForbiddenError
from ditk_ray.kube.connection import Kube
from ditk_ray.kube.labels import CLUSTER, MANAGED_BY, MANAGER
from ditk_ray.kube.objects import Manifest
from ditk_ray.kube.resources import DEPLOYMENTS, VOLUME_CLAIMS, Resource


def find_costs(kube: Kube, name: str) -> list[str]:
    """Return what costs money of a cluster, or of a RayJob, also when that has ended.

    What stands beside it is known only of those that ditk-ray made.
    """
    try:
        cluster = cluster_object(kube, name)
    except BadConfigError:
        return standing_costs(None, *_beside(kube, name))
    beside = _beside(kube, launch_name(cluster))
    return standing_costs(None if is_suspended(cluster) else cluster, *beside)


def find_claims(kube: Kube) -> list[Manifest]:
    """Return the claims that ditk-ray made, also those whose clusters are gone."""
    return _list(kube, VOLUME_CLAIMS, CLUSTER)


def _beside(kube: Kube, name: str) -> tuple[list[Manifest], list[Manifest]]:
    chosen = f"{CLUSTER}={name}"
    return _list(kube, DEPLOYMENTS, chosen), _list(kube, VOLUME_CLAIMS, chosen)


def _list(kube: Kube, resource: Resource, labels: str) -> list[Manifest]:
    try:
        return kube.objects(resource).list(f"{MANAGED_BY}={MANAGER},{labels}")
    except KubeForbiddenError:
        return []  # who may only look at clusters need not see more
