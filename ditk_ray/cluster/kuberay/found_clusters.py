"""Looking for the Ray clusters and RayJobs of a namespace: few requests, however many there are."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime

from ditk_ray.cluster.kuberay.ray_cluster import (
    POD_CLUSTER,
    head_service,
    launch_name,
    mlflow_service,
    name_of,
)
from ditk_ray.cluster.kuberay.ray_cluster_health import Health, Seen, health_of
from ditk_ray.cluster.kuberay.ray_job_health import JobHealth, job_health
from ditk_ray.config.nearest import did_you_mean
from ditk_ray.errors import BadConfigError, KubeForbiddenError, Problem
from ditk_ray.kube.connection import Kube
from ditk_ray.kube.labels import CLUSTER
from ditk_ray.kube.objects import Manifest
from ditk_ray.kube.resources import ENDPOINTS, RAY_CLUSTERS, RAY_JOBS, SERVICES


@dataclass(frozen=True)
class Found:
    """What there is in a namespace, by name."""

    clusters: list[Health]
    jobs: list[JobHealth]


def find_all(kube: Kube, now: datetime) -> Found:
    """Return how all clusters and RayJobs stand.

    Takes five requests, and two more if a cluster is not ready.
    """
    clusters = kube.objects(RAY_CLUSTERS).list()
    jobs = kube.objects(RAY_JOBS).list()
    healths = _judge(kube, clusters, now) if clusters else []
    return Found(healths, [job_health(job, now) for job in jobs])


def find_cluster(kube: Kube, name: str, now: datetime) -> Health:
    """Return how one cluster stands, which may be named by the RayJob that it runs for.

    Raises BadConfigError, with the names that are there, if there is no such cluster.
    """
    return _judge(kube, [cluster_object(kube, name)], now)[0]


def find_job(kube: Kube, name: str, now: datetime) -> JobHealth | None:
    """Return how a RayJob stands; None if there is none of this name."""
    jobs = kube.objects(RAY_JOBS).list(fields=f"metadata.name={name}")
    return job_health(jobs[0], now) if jobs else None


def cluster_object(kube: Kube, name: str) -> Manifest:
    """Return a RayCluster by its name, by the one it was launched by, or by its RayJob's.

    Raises BadConfigError, with the names that are there, if there is none.
    """
    there = kube.objects(RAY_CLUSTERS).list()
    named = [each for each in there if name_of(each) == name]
    launched = [each for each in there if launch_name(each) == name]
    for_job = [each for each in there if name and _owner(each) == name]
    chosen = named or launched or for_job
    if not chosen:
        what = f"no Ray cluster in namespace {kube.namespace!r} is called {name!r}"
        known = {name_of(each) for each in there} | {launch_name(each) for each in there}
        hint = did_you_mean(name, known) or "`ditk-ray cluster launch` makes one"
        raise BadConfigError(Problem("NAME", what, hint))
    # Of a job that is tried again, the newest is the one that counts.
    return max(chosen, key=lambda each: str(each["metadata"].get("creationTimestamp", "")))


def _judge(kube: Kube, clusters: list[Manifest], now: datetime) -> list[Health]:
    seen = _see(kube, clusters)
    healths = [health_of(each, now) for each in seen]
    if all(health.is_ready for health in healths):
        return healths
    mlflow_pods = _by_label(kube.pods.list(f"{CLUSTER},!{POD_CLUSTER}"), CLUSTER)
    warnings = _warnings(kube)
    return [
        health_of(_with_details(each, mlflow_pods, warnings), now)
        if not health.is_ready
        else health
        for each, health in zip(seen, healths, strict=True)
    ]


def _see(kube: Kube, clusters: list[Manifest]) -> list[Seen]:
    """Join what the server has about several clusters, from one list of each kind."""
    is_one = len(clusters) == 1
    chosen = f"{POD_CLUSTER}={name_of(clusters[0])}" if is_one else POD_CLUSTER
    pods = _by_label(kube.pods.list(chosen), POD_CLUSTER)
    services = _by_name(kube.objects(SERVICES).list())
    endpoints = _by_name(kube.objects(ENDPOINTS).list())
    seen = []
    for cluster in clusters:
        names = (head_service(cluster), mlflow_service(cluster))
        own = [{key: kind[key] for key in names if key in kind} for kind in (services, endpoints)]
        seen.append(Seen(cluster, pods.get(name_of(cluster), []), [], own[0], own[1]))
    return seen


def _with_details(seen: Seen, mlflow: dict[str, list[Manifest]], warnings: list[Manifest]) -> Seen:
    pods = mlflow.get(launch_name(seen.cluster), [])
    return replace(seen, mlflow_pods=pods, warnings=warnings)


def _warnings(kube: Kube) -> list[Manifest]:
    try:
        return kube.events.list(fields="type=Warning")
    except KubeForbiddenError:
        return []  # a reason that may not be read must not hide what is known


def _by_name(objects: Iterable[Manifest]) -> dict[str, Manifest]:
    return {each["metadata"]["name"]: each for each in objects}


def _by_label(objects: Iterable[Manifest], key: str) -> dict[str, list[Manifest]]:
    found: dict[str, list[Manifest]] = {}
    for each in objects:
        found.setdefault((each["metadata"].get("labels") or {}).get(key, ""), []).append(each)
    return found


def _owner(cluster: Manifest) -> str:
    """Return the name of the RayJob that a cluster is for."""
    owners = cluster["metadata"].get("ownerReferences") or []
    return next((str(each["name"]) for each in owners if each.get("kind") == "RayJob"), "")
