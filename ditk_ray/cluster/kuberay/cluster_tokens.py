"""Fetching the token of a cluster from its Secret, for whoever submits to it."""

from __future__ import annotations

import base64
from pathlib import Path

from ditk_ray.cluster.jobs.tokens import write_token
from ditk_ray.cluster.kuberay.ray_cluster import DATA_KEY
from ditk_ray.cluster.kuberay.ray_cluster_health import Health
from ditk_ray.errors import KubeError
from ditk_ray.kube.connection import Kube
from ditk_ray.kube.resources import TOKENS


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
