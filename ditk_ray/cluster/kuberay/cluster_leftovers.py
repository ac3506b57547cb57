"""What is left of Ray clusters that are gone, and of jobs that are over."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from ditk_ray.cluster.kuberay.cluster_pieces import Piece
from ditk_ray.cluster.kuberay.ray_job_health import job_health
from ditk_ray.kube.ages import age_of
from ditk_ray.kube.resources import RAY_CLUSTERS, RAY_JOBS

LAUNCH_SECONDS = 600.0
"""What is younger may be of a launch that is under way: its RayCluster comes last."""


@dataclass(frozen=True)
class ClusterLeftover:
    """A piece that no living cluster or job needs, and why that is known."""

    piece: Piece
    age: float
    why: str


def cluster_leftovers(pieces: Iterable[Piece], now: datetime) -> list[ClusterLeftover]:
    """Return which of the pieces are left over; those that hold data are among them."""
    pieces = list(pieces)
    by_cluster: dict[str, list[Piece]] = {}
    for piece in pieces:
        by_cluster.setdefault(piece.cluster, []).append(piece)
    return [item for name in sorted(by_cluster) for item in _left_of(by_cluster[name], now)]


def _left_of(pieces: list[Piece], now: datetime) -> list[ClusterLeftover]:
    """Return what is left of one cluster or job; nothing if it lives."""
    if any(piece.resource == RAY_CLUSTERS for piece in pieces):
        return []
    jobs = [job_health(piece.manifest, now) for piece in pieces if piece.resource == RAY_JOBS]
    if any(not job.is_over for job in jobs):
        return []
    if jobs:
        why, least = f"its RayJob is over: {jobs[0].state}", 0.0
    else:
        why, least = "its RayCluster is gone", LAUNCH_SECONDS
    ages = [(piece, age_of(piece.manifest, now)) for piece in pieces]
    if any(age < least for _, age in ages):
        return []  # also old pieces may be of a launch that is under way: claims outlive clusters
    return [ClusterLeftover(piece, age, why) for piece, age in ages]
