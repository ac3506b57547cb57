"""Changing a job that is there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ditk_ray.config import dotted
from ditk_ray.errors import BadConfigError, KubeConflictError, Problem
from ditk_ray.kube.connection import Kube
from ditk_ray.kube.job_limits import name_problems
from ditk_ray.kube.job_logs import check_task
from ditk_ray.kube.objects import Manifest
from ditk_ray.kube.pod_parts import task_name
from ditk_ray.kube.template_check import template_problems
from ditk_ray.kube.yaml_text import read_yaml

_ATTEMPTS = 5


def read_patch(text: str) -> dict[str, Any]:
    """Return what a patch says, in JSON or YAML; raises BadConfigError."""
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
    before = kube.dijobs.get(name)
    return _changed(kube, before, patch)


def scale_job(kube: Kube, name: str, task: str, replicas: int) -> tuple[Manifest, bool]:
    """Give a task another number of replicas; return the job, and whether it is another now."""
    for attempt in range(_ATTEMPTS):
        before = kube.dijobs.get(name)
        check_task(before, task)
        tasks = [
            {**each, "replicas": replicas} if task_name(each) == task else each
            for each in before["spec"]["tasks"]
        ]
        # A merge replaces the whole list: one that somebody changed meanwhile must not be.
        version = {"resourceVersion": before["metadata"]["resourceVersion"]}
        try:
            return _changed(kube, before, {"metadata": version, "spec": {"tasks": tasks}})
        except KubeConflictError:
            if attempt == _ATTEMPTS - 1:
                raise
    raise AssertionError("the last attempt returns or raises")


def _changed(kube: Kube, before: Manifest, patch: Mapping[str, Any]) -> tuple[Manifest, bool]:
    name = before["metadata"]["name"]
    known = _problems(before)
    # What was wrong before must not keep somebody from mending another thing.
    problems = [problem for problem in _problems(merged(before, patch)) if problem not in known]
    if problems:
        raise BadConfigError(problems)
    after = kube.dijobs.patch(name, patch)
    return after, after["metadata"]["resourceVersion"] != before["metadata"]["resourceVersion"]


def _problems(job: Mapping[str, Any]) -> list[Problem]:
    found = list(template_problems(job, None, needs_script=False))
    return found or list(name_problems(job["spec"], job["metadata"]["name"]))


def merged(tree: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """Return a tree with a merge patch applied, as the API server does it (RFC 7386)."""
    result = dotted.plain(tree)
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, Mapping):
            below = result.get(key)
            result[key] = merged(below if isinstance(below, Mapping) else {}, value)
        else:
            result[key] = value
    return dict(result)
