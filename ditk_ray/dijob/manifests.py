"""The DIJob and the ConfigMap of one job, made of a template: for a trial, or for itself."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from ditk_ray.config.resources import THREAD_VARIABLES, TrialResources
from ditk_ray.dijob import jobs
from ditk_ray.dijob.template import (
    CONFIG_FOLDER,
    DijobTemplate,
    blank_keys,
    config_map_name,
    config_map_references,
    label_problems,
    raise_problems,
)
from ditk_ray.errors import BadConfigError, Problem
from ditk_ray.kube.objects import MANAGED_BY, MANAGER, kube_quantity
from ditk_ray.kube.pods import main_container
from ditk_ray.util import dotted
from ditk_ray.util.units import show_bytes

ALL_TASKS = "*"
MAX_CONFIG_MAP_BYTES = 1024 * 1024
USUAL_GPU = "nvidia.com/gpu"

_OURS = "DITK_RAY_"
_VOLUME = "ditk-ray-config"
_LATE_ATTEMPT = 99
"""A trial that was tried so often still has names that are short enough."""

_KINDS = ("requests", "limits")
_DIVISIBLE = ("cpu", "memory", "ephemeral-storage")
"""What may be given in parts; everything else is counted."""


@dataclass(frozen=True)
class JobManifests:
    """What is sent to the API server: a DIJob, and the ConfigMap of its name that it mounts."""

    name: str
    dijob: dotted.Tree
    config_map: dotted.Tree | None


def render_job(
    template: DijobTemplate,
    identity: jobs.JobIdentity,
    script: str,
    resources: Mapping[str, TrialResources],
    namespace: str,
) -> JobManifests:
    """Put an attempt's values into a template, which stays as it is.

    `resources` are for the task of that name, or for all others under `ALL_TASKS`; a task
    that is not among them keeps the template's. The template's own variables win over the
    numbers of threads. Raises `BadConfigError` with all that does not go together.
    """
    name = identity.job_name(template.name)
    spec = dotted.plain(template.dijob["spec"])
    config_map = _config_map(template, script) or {}
    late = replace(identity, attempt=max(identity.attempt, _LATE_ATTEMPT))
    problems = list(name_problems(spec, late.job_name(template.name)))
    problems += _size_problems(config_map)
    problems += _resource_problems(spec, resources)
    raise_problems(template.source, problems)
    _mount_script(spec, template, name)
    for task, _, given in _each_given(spec, resources):
        _set_resources(main_container(task["template"]), given, spec)
    project = {"DITK_RAY_PROJECT": template.project_path} if template.project_path else {}
    own = {**identity.environment, "DITK_RAY_JOB": name, **project}
    _give_environment(spec, {"PYTHONUNBUFFERED": "1", **own})
    spec["backoffLimit"] = 0  # a restart would take the failed pods' logs away
    if spec.get("cleanPodPolicy") == "All":  # and so would this
        spec["cleanPodPolicy"] = "Running"
    labelled = partial(_labelled, name, namespace, identity.labels)
    return JobManifests(name, labelled({**template.dijob, "spec": spec}), labelled(config_map))


def build_job(
    template: DijobTemplate, namespace: str, script: str | None = None, name: str | None = None
) -> JobManifests:
    """Make a job of a template as it is, which is not a trial of a sweep.

    `script` goes into the key of the ConfigMap that is left empty, as it is; the ConfigMap
    gets the job's name. Raises BadConfigError with all that is wrong.
    """
    named = name or template.name
    spec = dotted.plain(template.dijob["spec"])
    config_map = _config_map(template, script)
    problems = [*_script_problems(template, script), *label_problems(named, "metadata.name")]
    problems += name_problems(spec, named)
    problems += _size_problems(config_map or {})
    if template.namespace not in (None, namespace):
        what = f"is {template.namespace!r}, and --namespace is {namespace!r}"
        problems.append(Problem("metadata.namespace", what, "leave one of them out"))
    raise_problems(template.source, problems)
    if config_map is not None:
        _mount_script(spec, template, named)
    labels = {MANAGED_BY: MANAGER, jobs.CREATION: secrets.token_hex(6)}
    labelled = partial(_labelled, named, namespace, labels)
    dijob = labelled({**template.dijob, "spec": spec})
    return JobManifests(named, dijob, labelled(config_map) if config_map is not None else None)


def read_config(path: Path) -> str:
    try:
        return path.expanduser().read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadConfigError(Problem("--config", f"cannot be read: {error}")) from None


def asks_for_gpu(spec: Mapping[str, Any], resources: Mapping[str, TrialResources]) -> bool:
    """Say whether a container of a job asks for a GPU, by itself or by what it is given."""
    asked = [pair for _, _, container in jobs.each_container(spec) for pair in _asked(container)]
    for given in resources.values():
        custom = {USUAL_GPU: given.gpu, **given.custom}
        asked += [(name, f"{amount:g}") for name, amount in custom.items()]
    return any("gpu" in name.lower() and amount != "0" for name, amount in asked)


def name_problems(spec: dotted.Tree, name: str) -> Iterator[Problem]:
    """Yield which pods' names are too long; the Service's, `di-<job>`, is always shorter."""
    for task, where in jobs.each_task(spec):
        pod = f"{name}-{jobs.task_name(task)}-{task.get('replicas', 1) - 1}"
        if len(pod) > jobs.MAX_NAME:
            what = (
                f"a pod would be called {pod}, which has {len(pod)} characters of {jobs.MAX_NAME}"
            )
            hint = f"make metadata.name shorter by {len(pod) - jobs.MAX_NAME}, or the task's name"
            yield Problem(f"metadata.name, {where}", what, hint)


def _size_problems(config_map: dotted.Tree) -> Iterator[Problem]:
    size = sum(len(str(value).encode()) for value in (config_map.get("data") or {}).values())
    if size > MAX_CONFIG_MAP_BYTES:
        what = f"would hold {show_bytes(size)}; Kubernetes takes 1 MiB"
        yield Problem("ConfigMap", what, "keep large data on a volume, and its path in the config")


def _script_problems(template: DijobTemplate, script: str | None) -> Iterator[Problem]:
    blank = blank_keys(template.config_map)
    data = (template.config_map or {}).get("data") or {}
    if script is None and blank:
        what = f"the key {blank[0]} is left empty for a config"
        yield Problem("ConfigMap data", what, "pass --config CONFIG.py")
    if script is not None and not blank and template.script_key in data:
        what = f"no key is empty, and {template.script_key} holds something already"
        yield Problem("ConfigMap data", what, "empty it, or leave --config out")


def _resource_problems(
    spec: dotted.Tree, resources: Mapping[str, TrialResources]
) -> Iterator[Problem]:
    names = [jobs.task_name(task) for task, _ in jobs.each_task(spec)]
    for name in resources:
        if name not in (ALL_TASKS, *names):
            what = f"resources are given for a task {name!r}, but the tasks are {', '.join(names)}"
            yield Problem("spec.tasks", what)
    for task, where, given in _each_given(spec, resources):
        gpu = _gpu_name(main_container(task["template"]), spec)
        for name, value in {gpu: given.gpu, **given.custom}.items():
            if name not in _DIVISIBLE and value != int(value):
                what = f"asks for {value:g} of {name}, but Kubernetes only gives whole ones"
                yield Problem(f"{where}.resources", what, "ask for a whole number, or for none")


def _labelled(
    name: str, namespace: str, labels: Mapping[str, str], document: dotted.Tree
) -> dotted.Tree:
    given = document.get("metadata") or {}
    metadata = {
        "name": name,
        "namespace": namespace,
        "labels": {**(given.get("labels") or {}), **labels},
        "annotations": given.get("annotations"),
    }
    kept = {key: dotted.plain(value) for key, value in metadata.items() if value}
    return {**document, "metadata": kept}


def _config_map(template: DijobTemplate, script: str | None) -> dotted.Tree | None:
    if template.config_map is None and script is None:
        return None
    base = dotted.plain(template.config_map or {"apiVersion": "v1", "kind": "ConfigMap"})
    data = {key: value or "" for key, value in (base.get("data") or {}).items()}
    if script is not None:
        data[template.script_key] = script
    return {**base, "metadata": base.get("metadata") or {}, "data": data}


def _mount_script(spec: dotted.Tree, template: DijobTemplate, config_map: str) -> None:
    """Have the containers see the ConfigMap; where the template mounts none, all of them do.

    One that has nothing to run then runs the script.
    """
    if template.config_map is not None:
        old = config_map_name(template.config_map)
        for reference in config_map_references(spec):
            if reference.get("name") == old:
                reference["name"] = config_map
        return
    for task, _ in jobs.each_task(spec):
        pod = task["template"]["spec"]
        volume = {"name": _VOLUME, "configMap": {"name": config_map}}
        pod["volumes"] = [*(pod.get("volumes") or []), volume]
        for container in jobs.containers_of(task):
            mount = {"name": _VOLUME, "mountPath": CONFIG_FOLDER}
            container["volumeMounts"] = [*(container.get("volumeMounts") or []), mount]
        main = main_container(task["template"])
        if not main.get("command") and not main.get("args"):
            main["command"] = ["python", "-u", f"{CONFIG_FOLDER}/{template.script_key}"]


def _give_environment(spec: dotted.Tree, environment: Mapping[str, str]) -> None:
    for task, _, container in jobs.each_container(spec):
        threads = _threads_of(main_container(task["template"]))
        counts = {} if threads is None else dict.fromkeys(THREAD_VARIABLES, str(threads))
        given = container.get("env") or []
        theirs = [item for item in given if not str(item.get("name")).startswith(_OURS)]
        names = {item.get("name") for item in theirs}
        ours = [
            {"name": key, "value": value}
            for key, value in {**counts, **environment}.items()
            if key not in names
        ]
        container["env"] = ours + theirs


def _each_given(
    spec: dotted.Tree, resources: Mapping[str, TrialResources]
) -> Iterator[tuple[dotted.Tree, str, TrialResources]]:
    for task, where in jobs.each_task(spec):
        given = resources.get(jobs.task_name(task)) or resources.get(ALL_TASKS)
        if given is not None:
            yield task, where, given


def _asked(container: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for kind in _KINDS:
        for name, amount in ((container.get("resources") or {}).get(kind) or {}).items():
            yield str(name), str(amount)


def _gpu_name(container: Mapping[str, Any], spec: Mapping[str, Any]) -> str:
    for item in (container, *(other for _, _, other in jobs.each_container(spec))):
        for name, _ in _asked(item):
            if "gpu" in name.lower():
                return name
    return USUAL_GPU


def _set_resources(
    container: dict[str, Any], given: TrialResources, spec: Mapping[str, Any]
) -> None:
    wanted = {"cpu": given.cpu, _gpu_name(container, spec): given.gpu, **given.custom}
    amounts = {name: _amount(value) for name, value in wanted.items() if value}
    if given.memory:
        amounts["memory"] = kube_quantity(given.memory)
    if amounts:
        resources = container.get("resources") or {}
        kept = {kind: {**(resources.get(kind) or {}), **amounts} for kind in _KINDS}
        container["resources"] = {**resources, **kept}


def _amount(value: float) -> str:
    return str(int(value)) if value == int(value) else f"{round(value * 1000)}m"


def _threads_of(container: Mapping[str, Any]) -> int | None:
    resources = container.get("resources") or {}
    asked = {**(resources.get("requests") or {}), **(resources.get("limits") or {})}
    cpus = re.fullmatch(r"(\d+(?:\.\d+)?)(m?)", str(asked.get("cpu")))
    return max(1, int(float(cpus[1]) / (1000 if cpus[2] else 1))) if cpus else None
