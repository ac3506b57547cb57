"""Making a job, so that trying again never makes a second one, and changing one."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from typing import Any

from ditk_ray.dijob.jobs import check_task, task_name
from ditk_ray.dijob.manifests import JobManifests, name_problems
from ditk_ray.dijob.template import template_problems
from ditk_ray.errors import (
    BadConfigError,
    KubeConflictError,
    KubeError,
    KubeNotFoundError,
    KubeUnreachableError,
    Problem,
)
from ditk_ray.kube.connection import Kube
from ditk_ray.kube.http_client import Backoff
from ditk_ray.kube.objects import DIJOBS, Manifest
from ditk_ray.kube.yaml_text import read_yaml
from ditk_ray.util import dotted

_CLEANUP_SECONDS = 30.0
"""How long the ConfigMap of a deleted job of the same name may take to go."""


def submit_job(kube: Kube, order: JobManifests) -> tuple[Manifest, bool]:
    """Make a job and then its ConfigMap, which it owns; return it, and whether it is new.

    One that is there already and has the same labels is taken for this one. The DIJob is
    first, so that nothing is ever without an owner; a pod waits for its
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
    return job, is_new


def _existing(kube: Kube, order: JobManifests) -> Manifest:
    job = kube.dijobs.get(order.name)
    labels = job["metadata"].get("labels") or {}
    wanted = order.dijob["metadata"].get("labels") or {}
    if any(labels.get(key) != value for key, value in wanted.items()):
        raise KubeConflictError(
            f"another DIJob {order.name!r} exists in namespace {kube.namespace!r}\n"
            "    delete it, or give the template another metadata.name",
            409,
            is_there_already=True,
        )
    return job


def _ensure_config_map(kube: Kube, name: str, config_map: Mapping[str, Any], job: Manifest) -> None:
    end, backoff = time.monotonic() + _CLEANUP_SECONDS, Backoff()
    named = {key: job["metadata"][key] for key in ("name", "uid")}
    owner = {"apiVersion": DIJOBS.api_version, "kind": DIJOBS.kind, **named}
    metadata = {**config_map.get("metadata", {}), "ownerReferences": [owner]}
    owned = {**config_map, "metadata": metadata}
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


def _belongs_to(kube: Kube, name: str, job: Manifest) -> bool:
    try:
        found = kube.config_maps.get(name)
    except KubeNotFoundError:
        return False
    owners = found["metadata"].get("ownerReferences") or []
    return any(owner.get("uid") == job["metadata"]["uid"] for owner in owners)


def read_patch(text: str) -> dict[str, Any]:
    try:
        patch = read_yaml(text)
    except ValueError as error:
        raise BadConfigError(Problem("--patch", f"is neither JSON nor YAML: {error}")) from None
    if not isinstance(patch, dict) or not patch:
        hint = """as in '{"spec": {"cleanPodPolicy": "None"}}'"""
        raise BadConfigError(Problem("--patch", "has to be a mapping", hint))
    return patch


def patch_job(kube: Kube, name: str, patch: Mapping[str, Any]) -> tuple[Manifest, bool]:
    """Merge a patch into a job; return it, and whether it is another now.

    Raises BadConfigError when the operator would fail the job for it, or crash.
    """
    return _changed(kube, kube.dijobs.get(name), patch)


def scale_job(kube: Kube, name: str, task: str, replicas: int) -> tuple[Manifest, bool]:
    """Give a task another number of replicas; return the job, and whether it is another now.

    Raises KubeConflictError when the job was changed externally at the same moment.
    """
    before = kube.dijobs.get(name)
    check_task(before, task)
    tasks = [
        {**each, "replicas": replicas} if task_name(each) == task else each
        for each in before["spec"]["tasks"]
    ]
    # A merge replaces the whole list: one that was changed meanwhile must not be.
    version = {"resourceVersion": before["metadata"]["resourceVersion"]}
    return _changed(kube, before, {"metadata": version, "spec": {"tasks": tasks}})


def _changed(kube: Kube, before: Manifest, patch: Mapping[str, Any]) -> tuple[Manifest, bool]:
    # An earlier mistake must not prevent correcting another one.
    known, now = _problems(before), _problems(dotted.merged(before, patch))
    problems = [problem for problem in now if problem not in known]
    if problems:
        raise BadConfigError(problems)
    after = kube.dijobs.patch(before["metadata"]["name"], patch)
    return after, after["metadata"]["resourceVersion"] != before["metadata"]["resourceVersion"]


def _problems(job: Mapping[str, Any]) -> list[Problem]:
    found = list(template_problems(job))
    return found or list(name_problems(job["spec"], job["metadata"]["name"]))
