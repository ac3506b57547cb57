"""Which sweeps are alive, by the signs of life that they leave in the cluster."""

from __future__ import annotations

from datetime import datetime

from ditk_ray.kube.ages import seconds_since
from ditk_ray.kube.connection import Kube
from ditk_ray.kube.labels import ALIVE_AT, HEARTBEAT, SWEEP
from ditk_ray.kube.objects import Manifest

DEAD_SECONDS = 600.0
"""A sweep that gave no sign of life for so long is dead."""


def signs_of_life(kube: Kube) -> list[Manifest]:
    """Return the ConfigMaps by which sweeps say that they are alive."""
    return kube.config_maps.list(f"{HEARTBEAT}=true")


def silence_of(sign: Manifest, now: datetime) -> float:
    """Return for how many seconds a sweep has given no sign of life."""
    metadata = sign["metadata"]
    alive_at = (metadata.get("annotations") or {}).get(ALIVE_AT)
    return seconds_since(str(alive_at or metadata.get("creationTimestamp", "")), now)


def silences(signs: list[Manifest], now: datetime) -> dict[str, float]:
    """Return each sweep's silence in seconds, by its key."""
    return {
        str((sign["metadata"].get("labels") or {}).get(SWEEP, "")): silence_of(sign, now)
        for sign in signs
    }


def living_sweeps(kube: Kube, now: datetime) -> set[str]:
    """Return the keys of the sweeps that are alive."""
    found = silences(signs_of_life(kube), now)
    return {sweep for sweep, silence in found.items() if silence < DEAD_SECONDS}
