"""Which clusters are meant: by name, by address, or by what there is."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

from ditk_ray.cluster.jobs.cluster_file import (
    KnownCluster,
    chosen_clusters,
    is_address,
    read_clusters,
)
from ditk_ray.errors import BadConfigError, Problem

LOCAL_ADDRESS = "http://127.0.0.1:8265"
"""Where the dashboard of a Ray on this machine is by default."""


def choose_clusters(
    names: Sequence[str], addresses: Sequence[str], file: Path, has_several_jobs: bool
) -> list[KnownCluster]:
    """Return where jobs go; raises BadConfigError if that is not clear.

    Without names and addresses that is $RAY_ADDRESS if it is a URL, else the only cluster of
    the file, or all of them for several jobs, else a Ray on this machine.
    """
    clusters = all_clusters(names, addresses, file)
    if len(clusters) > 1 and not (has_several_jobs or names or addresses):
        known = ", ".join(cluster.name for cluster in clusters)
        what = f"is needed: there are several clusters in {file}"
        raise BadConfigError(Problem("--cluster", what, f"choose one of {known}"))
    return clusters


def all_clusters(names: Sequence[str], addresses: Sequence[str], file: Path) -> list[KnownCluster]:
    """Return the clusters that are meant where it does no harm to mean all of them."""
    known = read_clusters(file)
    chosen = chosen_clusters(known, names) + [_at(address, known) for address in addresses]
    if chosen:
        return list(dict.fromkeys(chosen))
    surrounding = os.environ.get("RAY_ADDRESS", "")
    if surrounding.startswith(("http://", "https://")):
        return [_at(surrounding, known)]
    return known or [_at(LOCAL_ADDRESS, known)]


def _at(address: str, known: Sequence[KnownCluster]) -> KnownCluster:
    """Return the cluster at an address, by its name if it has one."""
    address = address.rstrip("/")
    if not is_address(address):
        what = "is no address of a dashboard, where jobs are sent to"
        raise BadConfigError(Problem(f"--address {address}", what, "write http://HOST:8265"))
    for cluster in known:
        if cluster.address == address:
            return cluster
    return KnownCluster(urlsplit(address).netloc.rpartition("@")[2], address)
