"""Waiting for a Ray cluster to be ready, and saying meanwhile why it is not."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime

from ditk_ray.cluster.kuberay.found_clusters import find_cluster
from ditk_ray.cluster.kuberay.ray_cluster_health import Health, State
from ditk_ray.kube.connection import Kube

_LOOK_SECONDS = 2.0


def wait_for_cluster(kube: Kube, name: str, seconds: float, tell: Callable[[str], None]) -> Health:
    """Return how a cluster stands once it is ready, is going, or the time is over.

    `tell` is called with each thing that it waits for. What is wrong may pass, as nodes are
    added or a quota is raised, so only deleting ends the waiting before its time. Raises
    BadConfigError for a cluster that is not there.
    """
    end = time.monotonic() + seconds
    told = ""
    while True:
        health = find_cluster(kube, name, datetime.now(UTC))
        left = end - time.monotonic()
        if health.is_ready or health.state is State.DELETING or left <= 0:
            return health
        news = f"{health.name} is {health.state.lower()}: {health.why}"
        if news != told:
            tell(news)
            told = news
        time.sleep(min(left, _LOOK_SECONDS))
