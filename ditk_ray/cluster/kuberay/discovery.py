"""Writing the clusters that Kubernetes has into the file that `submit` reads."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from ditk_ray.cluster.jobs.cluster_file import (
    KnownCluster,
    forget_clusters,
    read_clusters,
    write_clusters,
)
from ditk_ray.cluster.jobs.tokens import forget_token
from ditk_ray.cluster.kuberay.cluster_tokens import keep_token
from ditk_ray.cluster.kuberay.port_forward import LOOPBACK
from ditk_ray.cluster.kuberay.ray_cluster_health import Health
from ditk_ray.errors import KubeError
from ditk_ray.kube.connection import Kube


@dataclass(frozen=True)
class Discovered:
    """A cluster that was written down. `token_note` says why its token was not kept."""

    name: str
    address: str
    mlflow_uri: str | None
    has_token: bool
    token_note: str = ""


def write_down(kube: Kube, clusters: Sequence[Health], path: Path) -> list[Discovered]:
    """Write clusters that are ready into a file, with their tokens beside it; return those.

    Their addresses are those inside Kubernetes. Lines of other clusters stay.
    """
    found = [_discover(kube, each) for each in clusters if each.is_ready and each.job_address]
    if found:
        write_clusters(path, [KnownCluster(each.name, each.address) for each in found])
    return found


def is_inside() -> bool:
    """Tell whether this process runs in Kubernetes, where Services are reached by name."""
    return bool(os.environ.get("KUBERNETES_SERVICE_HOST"))


@contextlib.contextmanager
def registered(path: Path, name: str, address: str) -> Iterator[None]:
    """Have a cluster at an address of this machine for a while; then what was there before."""
    before = next((each for each in read_clusters(path) if each.name == name), None)
    write_clusters(path, [KnownCluster(name, address)])
    try:
        yield
    finally:
        now = next((each for each in read_clusters(path) if each.name == name), None)
        if now is not None and now.address == address:
            _put_back(path, name, before)


def forget(path: Path, namespace: str, names: Collection[str]) -> None:
    """Forget clusters of a namespace that are deleted: their lines in a file, and their tokens.

    A line of the same name that leads somewhere else stays, and so does its token.
    """
    lines = [each for each in read_clusters(path) if each.name in names]
    others = {each.name for each in lines if not _is_ours(each.address, namespace)}
    gone = [name for name in names if name not in others]
    forget_clusters(path, gone)
    for name in gone:
        forget_token(name)


def _is_ours(address: str, namespace: str) -> bool:
    """Tell whether `discover` or `forward` may have written an address for a namespace."""
    host = urlsplit(address).hostname or ""
    return host == LOOPBACK or host.endswith(f".{namespace}.svc")


def _put_back(path: Path, name: str, before: KnownCluster | None) -> None:
    # One of loopback is what a forward left that was killed: it leads nowhere.
    if before is None or before.address.startswith(f"http://{LOOPBACK}:"):
        forget_clusters(path, [name])
    else:
        write_clusters(path, [before])


def _discover(kube: Kube, cluster: Health) -> Discovered:
    note = ""
    token: Path | None = None
    try:
        token = keep_token(kube, cluster)
    except KubeError as error:
        note = str(error).partition("\n")[0]
    address = str(cluster.job_address)
    return Discovered(cluster.name, address, cluster.mlflow_uri, token is not None, note)
