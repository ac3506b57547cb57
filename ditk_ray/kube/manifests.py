"""The DIJob and the ConfigMap of one attempt of a trial, made of a template."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ditk_ray.config import dotted
from ditk_ray.config.resources import TrialResources
from ditk_ray.errors import BadConfigError, Problem
from ditk_ray.kube.job_limits import name_problems, size_problems
from ditk_ray.kube.labels import JobIdentity
from ditk_ray.kube.pod_parts import (
    each_container,
    each_task,
    main_container,
    task_name,
)
from ditk_ray.kube.pod_resources import (
    THREAD_VARIABLES,
    gpu_name,
    quantities,
    resource_problems,
    set_resources,
    threads_of,
)
from ditk_ray.kube.script_mount import mount_script, rename_config_map
from ditk_ray.kube.script_place import config_map_name
from ditk_ray.kube.template import DijobTemplate
from ditk_ray.kube.yaml_text import yaml_documents

ALL_TASKS = "*"
_OURS = "DITK_RAY_"
_LATE_ATTEMPT = 99
"""A trial that was tried so often still has names that are short enough."""


@dataclass(frozen=True)
class JobManifests:
    """What is sent to the API server for one attempt, and the name of both."""

    name: str
    dijob: dotted.Tree
    config_map: dotted.Tree

    def as_yaml(self) -> str:
        """Return both as kubectl would take them."""
        return yaml_documents([self.dijob, self.config_map])


def render_job(
    template: DijobTemplate,
    identity: JobIdentity,
    script: str,
    resources: Mapping[str, TrialResources],
    environment: Mapping[str, str],
    namespace: str,
) -> JobManifests:
    """Put an attempt's values into a template, which stays as it is.

    `resources` are for the task of that name, or for all others under `ALL_TASKS`; a task
    that is not among them keeps the template's. Of `environment`, and of the numbers of
    threads, the template's own variables win. Raises `BadConfigError` with all that does
    not go together.
    """
    name = identity.job_name(template.name)
    spec = dotted.plain(template.dijob["spec"])
    config_map = _config_map(template, identity, name, namespace, script)
    late = replace(identity, attempt=max(identity.attempt, _LATE_ATTEMPT))
    problems = list(name_problems(spec, late.job_name(template.name)))
    problems += size_problems(config_map, template.script_key)
    problems += _resource_problems(spec, resources)
    if problems:
        raise BadConfigError(
            Problem(f"{template.source}: {item.where}", item.what, item.hint) for item in problems
        )
    if template.config_map is None:
        mount_script(spec, name, template.script_key)
    else:
        rename_config_map(spec, config_map_name(template.config_map), name)
    _give_resources(spec, resources)
    _give_environment(spec, _environment(template, identity, name, environment))
    spec["backoffLimit"] = 0  # a restart would take the failed pods' logs away
    if spec.get("cleanPodPolicy") == "All":  # and so would this
        spec["cleanPodPolicy"] = "Running"
    dijob = {
        "apiVersion": template.dijob["apiVersion"],
        "kind": "DIJob",
        "metadata": _metadata(template.dijob, identity, name, namespace),
        "spec": spec,
    }
    return JobManifests(name, dijob, config_map)


def _metadata(
    document: Mapping[str, Any], identity: JobIdentity, name: str, namespace: str
) -> dotted.Tree:
    given = dotted.plain(document.get("metadata") or {})
    metadata = {
        "name": name,
        "namespace": namespace,
        "labels": {**(given.get("labels") or {}), **identity.labels},
    }
    if given.get("annotations"):
        metadata["annotations"] = given["annotations"]
    return metadata


def _config_map(
    template: DijobTemplate, identity: JobIdentity, name: str, namespace: str, script: str
) -> dotted.Tree:
    base = dotted.plain(template.config_map or {"apiVersion": "v1", "kind": "ConfigMap"})
    data = {key: value or "" for key, value in (base.get("data") or {}).items()}
    return {
        **base,
        "metadata": _metadata(base, identity, name, namespace),
        "data": {**data, template.script_key: script},
    }


def _give_resources(spec: dotted.Tree, resources: Mapping[str, TrialResources]) -> None:
    for task, _, given in _each_given(spec, resources):
        main = main_container(task)
        set_resources(main, quantities(given, gpu_name(main, spec)))


def _each_given(
    spec: dotted.Tree, resources: Mapping[str, TrialResources]
) -> Iterator[tuple[dotted.Tree, str, TrialResources]]:
    for task, where in each_task(spec):
        given = resources.get(task_name(task)) or resources.get(ALL_TASKS)
        if given is not None:
            yield task, where, given


def _environment(
    template: DijobTemplate, identity: JobIdentity, name: str, more: Mapping[str, str]
) -> dict[str, str]:
    project = {"DITK_RAY_PROJECT": template.project_path} if template.project_path else {}
    own = {**identity.environment, "DITK_RAY_JOB": name, **project}
    return {"PYTHONUNBUFFERED": "1", **more, **own}


def _give_environment(spec: dotted.Tree, environment: Mapping[str, str]) -> None:
    for task, _, container in each_container(spec):
        threads = threads_of(main_container(task))
        counts = {} if threads is None else dict.fromkeys(THREAD_VARIABLES, str(threads))
        theirs = [item for item in container.get("env") or [] if not item["name"].startswith(_OURS)]
        names = {item["name"] for item in theirs}
        ours = [
            {"name": key, "value": value}
            for key, value in {**counts, **environment}.items()
            if key not in names
        ]
        container["env"] = ours + theirs


def _resource_problems(
    spec: dotted.Tree, resources: Mapping[str, TrialResources]
) -> Iterator[Problem]:
    names = [task_name(task) for task, _ in each_task(spec)]
    for name in resources:
        if name not in (ALL_TASKS, *names):
            what = f"resources are given for a task {name!r}, and the tasks are {', '.join(names)}"
            yield Problem("spec.tasks", what)
    for task, where, given in _each_given(spec, resources):
        yield from resource_problems(given, gpu_name(main_container(task), spec), where)
