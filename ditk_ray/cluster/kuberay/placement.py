"""On which nodes pods may go: node selectors and tolerations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ditk_ray.cluster.kuberay import gke

GKE = "gke"
GENERIC = "generic"
CLOUDS = (GKE, GENERIC)

GPU = "nvidia.com/gpu"
GPU_PRODUCT = "nvidia.com/gpu.product"
"""Where NVIDIA's feature discovery writes a node's GPU; clusters of all clouds can have it."""

EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


@dataclass(frozen=True)
class Placement:
    """What a pod asks of its node, and which taints it bears."""

    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Mapping[str, str], ...] = ()

    def put_into(self, pod: dict[str, Any]) -> None:
        """Write it into the spec of a pod."""
        if self.node_selector:
            pod["nodeSelector"] = dict(self.node_selector)
        if self.tolerations:
            pod["tolerations"] = [dict(each) for each in self.tolerations]


def place_workers(
    cloud: str, accelerator: str | None, gpus: int, is_spot: bool, own: Placement
) -> Placement:
    """Return where workers go; `own` is what the user says besides, and wins.

    A cluster that is not GKE has no common label of spot nodes: they are said by `own`.
    """
    selector: dict[str, str] = {}
    tolerations: list[Mapping[str, str]] = []
    if accelerator:
        selector[gke.ACCELERATOR if cloud == GKE else GPU_PRODUCT] = accelerator
    if gpus:
        tolerations.append({"key": GPU, "operator": "Exists", "effect": "NoSchedule"})
    if is_spot:
        selector[gke.SPOT] = "true"
        spot = {"key": gke.SPOT, "operator": "Equal", "value": "true", "effect": "NoSchedule"}
        tolerations.append(spot)
    added = [each for each in own.tolerations if each not in tolerations]
    return Placement({**selector, **own.node_selector}, (*tolerations, *added))


def parse_toleration(text: str) -> dict[str, str]:
    """Turn `KEY[=VALUE][:EFFECT]` into a toleration; raises ValueError for an unknown effect."""
    taint, _, effect = text.partition(":")
    key, equals, value = taint.partition("=")
    if effect and effect not in EFFECTS:
        raise ValueError(f"{effect!r} is no effect; there are {', '.join(EFFECTS)}")
    toleration = {"key": key, "operator": "Equal" if equals else "Exists"}
    return (
        toleration | ({"value": value} if equals else {}) | ({"effect": effect} if effect else {})
    )
