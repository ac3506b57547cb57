"""Making a job, so that doing it again after whatever went wrong makes no second one."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from ditk_ray.errors import KubeConflictError, KubeError, KubeNotFoundError, KubeUnreachableError
from ditk_ray.kube.backoff import Backoff
from ditk_ray.kube.connection import Kube
from ditk_ray.kube.objects import Manifest
from ditk_ray.kube.resources import DIJOBS

_CLEANUP_SECONDS = 30.0
"""How long the ConfigMap of a deleted job of the same name may take to go."""


class JobOrder(Protocol):
    """What is to be made: a DIJob, and the ConfigMap that it mounts."""

    @property
    def name(self) -> str:
        """The name of both."""

    @property
    def dijob(self) -> Mapping[str, Any]:
        """The DIJob's manifest."""

    @property
    def config_map(self) -> Mapping[str, Any] | None:
        """The ConfigMap's manifest, without an owner."""


@dataclass(frozen=True)
class Submitted:
    """A job as the server has it, and whether it was made just now."""

    job: Manifest
    is_new: bool


def submit_job(kube: Kube, order: JobOrder) -> Submitted:
    """Make a job and then its ConfigMap, which it owns.

    One that is there already and has the same labels is taken for this one. The DIJob is
    first, so that whatever happens there is nothing without an owner; a pod waits for its
    ConfigMap. Raises KubeConflictError for a job that is not this one. When the ConfigMap
    is refused, the job is deleted.
    """
    try:
        job, is_new = kube.dijobs.create(order.dijob, is_repeatable=True), True
    except KubeConflictError as error:
        if not error.is_there_already:
            raise
        job, is_new = _existing(kube, order), False
    if order.config_map is not None:
        try:
            _ensure_config_map(kube, order.name, order.config_map, job)
        except KubeUnreachableError:
            raise
        except KubeError:
            with contextlib.suppress(KubeError):
                kube.dijobs.delete(order.name, uid=job["metadata"]["uid"])
            raise
    return Submitted(job, is_new)


def _existing(kube: Kube, order: JobOrder) -> Manifest:
    job = kube.dijobs.get(order.name)
    labels = job["metadata"].get("labels") or {}
    wanted = order.dijob["metadata"].get("labels") or {}
    if any(labels.get(key) != value for key, value in wanted.items()):
        raise KubeConflictError(
            f"there is another DIJob {order.name!r} in namespace {kube.namespace!r}\n"
            "    delete it, or give the template another metadata.name",
            409,
            is_there_already=True,
        )
    return job


def _ensure_config_map(kube: Kube, name: str, config_map: Mapping[str, Any], job: Manifest) -> None:
    end, backoff = time.monotonic() + _CLEANUP_SECONDS, Backoff()
    owned = _owned(config_map, job)
    while True:
        try:
            kube.config_maps.create(owned, is_repeatable=True)
            return
        except KubeConflictError:
            if _belongs_to(kube, name, job):
                return
            # It is that of a job which was deleted a moment ago, and is about to go.
            if time.monotonic() > end:
                raise
        time.sleep(backoff.pause())


def _owned(config_map: Mapping[str, Any], job: Manifest) -> Manifest:
    owner = {
        "apiVersion": DIJOBS.api_version,
        "kind": DIJOBS.kind,
        "name": job["metadata"]["name"],
        "uid": job["metadata"]["uid"],
    }
    metadata = {**config_map.get("metadata", {}), "ownerReferences": [owner]}
    return {**config_map, "metadata": metadata}


def _belongs_to(kube: Kube, name: str, job: Manifest) -> bool:
    try:
        found = kube.config_maps.get(name)
    except KubeNotFoundError:
        return False
    owners = found["metadata"].get("ownerReferences") or []
    return any(owner.get("uid") == job["metadata"]["uid"] for owner in owners)
