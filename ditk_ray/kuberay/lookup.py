"""Looking for the Ray clusters and RayJobs of a namespace, and writing them down for `submit`."""

from __future__ import annotations

import base64
import contextlib
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

from ditk_ray.errors import BadConfigError, KubeError, KubeForbiddenError, Problem
from ditk_ray.kube.connection import Kube
from ditk_ray.kube.objects import (
    CLUSTER,
    DEPLOYMENTS,
    ENDPOINTS,
    MANAGED_BY,
    MANAGER,
    RAY_CLUSTERS,
    RAY_JOBS,
    SERVICES,
    TOKENS,
    VOLUME_CLAIMS,
    Manifest,
    Objects,
)
from ditk_ray.kube.port_forward import LOOPBACK
from ditk_ray.kuberay.health import Health, JobHealth, Seen, State, health_of, job_health
from ditk_ray.kuberay.ray_cluster import DATA_KEY, POD_CLUSTER, RayCluster, claim_text, costs_of
from ditk_ray.submit.clusters import (
    KnownCluster,
    forget_clusters,
    forget_token,
    read_clusters,
    write_clusters,
    write_token,
)
from ditk_ray.util.suggest import did_you_mean

_LOOK_SECONDS = 2.0


def find_all(kube: Kube) -> tuple[list[Health], list[JobHealth]]:
    """Return how all clusters and RayJobs stand, with one list of each kind of object."""
    now = datetime.now(UTC)
    clusters = _judge(kube, _clusters(kube))
    return clusters, [job_health(job, now) for job in kube.objects(RAY_JOBS).list()]


def _clusters(kube: Kube) -> list[RayCluster]:
    return [RayCluster(each) for each in kube.objects(RAY_CLUSTERS).list()]


def find_cluster(kube: Kube, name: str) -> Health:
    """Return how one cluster stands, which may be named by the RayJob that it runs for.

    Raises BadConfigError if there is none.
    """
    return _judge(kube, [_cluster(kube, name)])[0]


def find_job(kube: Kube, name: str) -> JobHealth | None:
    """Return how a RayJob stands; None if there is none of this name."""
    jobs = kube.objects(RAY_JOBS).list(fields=f"metadata.name={name}")
    return job_health(jobs[0], datetime.now(UTC)) if jobs else None


def _cluster(kube: Kube, name: str) -> RayCluster:
    there = _clusters(kube)
    for key in ("name", "launch_name", "job_name"):
        if chosen := [each for each in there if name and getattr(each, key) == name]:
            # Of a job that is tried again, the newest is the one that counts.
            return max(chosen, key=lambda each: each.manifest["metadata"]["creationTimestamp"])
    what = f"no Ray cluster in namespace {kube.namespace!r} is called {name!r}"
    known = {each.name for each in there} | {each.launch_name for each in there}
    hint = did_you_mean(name, known) or "`ditk-ray cluster launch` makes one"
    raise BadConfigError(Problem("NAME", what, hint))


def _judge(kube: Kube, clusters: list[RayCluster]) -> list[Health]:
    if not clusters:
        return []
    ray_pods = _by_label(kube.pods.list(POD_CLUSTER), POD_CLUSTER)
    mlflow_pods = _by_label(kube.pods.list(f"{CLUSTER},!{POD_CLUSTER}"), CLUSTER)
    services, endpoints = (
        {each["metadata"]["name"]: each for each in kube.objects(kind).list()}
        for kind in (SERVICES, ENDPOINTS)
    )
    warnings = _readable(kube.events, fields="type=Warning")
    healths = []
    for cluster in clusters:
        pods = ray_pods.get(cluster.name, []) + mlflow_pods.get(cluster.launch_name, [])
        seen = Seen(cluster, pods, services, endpoints, warnings)
        healths.append(health_of(seen, datetime.now(UTC)))
    return healths


def _readable(objects: Objects, labels: str = "", fields: str = "") -> list[Manifest]:
    try:
        return objects.list(labels, fields)
    except KubeForbiddenError:
        return []


def _by_label(objects: Iterable[Manifest], key: str) -> dict[str, list[Manifest]]:
    found: dict[str, list[Manifest]] = {}
    for each in objects:
        found.setdefault(each["metadata"]["labels"][key], []).append(each)
    return found


def wait_for_cluster(kube: Kube, name: str, seconds: float, tell: Callable[[str], None]) -> Health:
    """Return how a cluster stands once it is ready, being deleted, or the time is over.

    `tell` is called with each thing that it waits for. What is wrong may pass, as nodes are
    added or a quota is raised. Raises BadConfigError for a cluster that is not there.
    """
    end = time.monotonic() + seconds
    told = ""
    while True:
        health = find_cluster(kube, name)
        left = end - time.monotonic()
        if health.is_ready or health.state is State.DELETING or left <= 0:
            return health
        news = f"{health.name} is {health.state.lower()}: {health.why}"
        if news != told:
            tell(news)
            told = news
        time.sleep(min(left, _LOOK_SECONDS))


def find_costs(kube: Kube, name: str) -> str:
    """Return in a line what is billable of a cluster, or of a RayJob, also when that has ended.

    What stands beside it is known only of those that ditk-ray made.
    """
    there: list[Manifest] = []
    with contextlib.suppress(BadConfigError):
        cluster = _cluster(kube, name)
        name = cluster.launch_name
        there += [] if cluster.is_suspended else [cluster.manifest]
    for kind in (DEPLOYMENTS, VOLUME_CLAIMS):
        there += _readable(kube.objects(kind), f"{MANAGED_BY}={MANAGER},{CLUSTER}={name}")
    return costs_of(there)


def find_claims(kube: Kube) -> list[str]:
    """Return the claims that ditk-ray made, also those whose clusters are gone."""
    claims = _readable(kube.objects(VOLUME_CLAIMS), f"{MANAGED_BY}={MANAGER},{CLUSTER}")
    return [claim_text(claim) for claim in claims]


@contextlib.contextmanager
def registered(path: Path, name: str, address: str) -> Iterator[None]:
    """Have a cluster at an address of this machine for a while; then what was there before."""
    before = _known(path, name)
    write_clusters(path, [KnownCluster(name, address)])
    try:
        yield
    finally:
        if _known(path, name) == KnownCluster(name, address):
            # One of loopback is what a forward left that was killed: it leads nowhere.
            if before is None or before.address.startswith(f"http://{LOOPBACK}:"):
                forget_clusters(path, [name])
            else:
                write_clusters(path, [before])


def _known(path: Path, name: str) -> KnownCluster | None:
    return next((each for each in read_clusters(path) if each.name == name), None)


def forget(path: Path, namespace: str, names: Collection[str]) -> None:
    """Forget clusters of a namespace that are deleted: their lines in a file, and their tokens.

    A line of the same name that leads somewhere else stays, and so does its token.
    """
    gone = set(names)
    for each in read_clusters(path):
        host = urlsplit(each.address).hostname or ""
        if host != LOOPBACK and not host.endswith(f".{namespace}.svc"):
            gone.discard(each.name)  # neither `discover` nor `forward` has written that
    forget_clusters(path, gone)
    for name in gone:
        forget_token(name)


def keep_token(kube: Kube, cluster: Health) -> Path | None:
    """Keep a cluster's token where `submit` looks for it; None if no token guards it.

    Raises KubeError if it cannot be had.
    """
    if cluster.token_secret is None:
        return None
    secret = kube.objects(TOKENS).get(cluster.token_secret)
    encoded = (secret.get("data") or {}).get(DATA_KEY)
    if not encoded:
        raise KubeError(f"the Secret {cluster.token_secret} has no {DATA_KEY}")
    return write_token(cluster.name, base64.b64decode(encoded).decode())
