"""The sign of life of a sweep: while it is fresh, nobody takes the sweep's jobs for leftovers."""

from __future__ import annotations

from datetime import UTC, datetime

from ditk_ray.errors import KubeNotFoundError
from ditk_ray.kube.labels import (
    ALIVE_AT,
    HEARTBEAT,
    MANAGED_BY,
    MANAGER,
    SWEEP,
    heartbeat_name,
)
from ditk_ray.kube.objects import Objects

BEAT_SECONDS = 60.0


class Heartbeat:
    """A ConfigMap with the time at which the sweep was last alive.

    Raises KubeError, and asks once only: there is always a next beat.
    """

    def __init__(self, config_maps: Objects, sweep_key: str) -> None:
        self._config_maps = config_maps
        self._name = heartbeat_name(sweep_key)
        self._labels = {SWEEP: sweep_key, HEARTBEAT: "true", MANAGED_BY: MANAGER}

    def beat(self) -> None:
        """Say that the sweep is alive now."""
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        metadata = {"labels": self._labels, "annotations": {ALIVE_AT: now}}
        try:
            self._config_maps.patch(self._name, {"metadata": metadata}, patience=0)
        except KubeNotFoundError:
            whole = {"metadata": {**metadata, "name": self._name}}
            self._config_maps.create(whole, is_repeatable=True, patience=0)

    def remove(self) -> None:
        """Say that the sweep is over."""
        try:
            self._config_maps.delete(self._name, patience=0)
        except KubeNotFoundError:
            return
