"""What is wrong with a template, before Kubernetes or the operator find out.

The API server prunes fields that it does not know and the operator fails jobs that it
does not like, or hangs or crashes: none of them says much.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ditk_ray.config.nearest import did_you_mean
from ditk_ray.errors import Problem
from ditk_ray.kube.pod_parts import (
    containers_of,
    each_container,
    each_task,
    main_container,
    task_name,
)
from ditk_ray.kube.script_place import (
    CONFIG_FOLDER,
    SCRIPT_KEY,
    blank_keys,
    config_map_name,
    config_map_references,
    mount_paths,
    script_key,
)

_SPEC_KEYS = {"priority", "cleanPodPolicy", "preemptible", "backoffLimit", "volumes", "tasks"}
_SPEC_KEYS |= {"projectPath"}
_TASK_KEYS = {"replicas", "type", "name", "template"}
_TYPES = ("learner", "collector", "evaluator", "none")
_ENUMS = {"priority": ("normal", "high"), "cleanPodPolicy": ("Running", "All", "None")}
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")

# {} is a mapping, [x] a list of x; what is not named may be anything.
_CONTAINER: dict[str, Any] = {
    "env": [{}],
    "envFrom": [{}],
    "volumeMounts": [{}],
    "resources": {"requests": {}, "limits": {}},
    "command": [],
    "args": [],
}
_POD = {"containers": [_CONTAINER], "initContainers": [_CONTAINER], "volumes": [{}]}
_METADATA: dict[str, Any] = {"labels": {}, "annotations": {}}
_DIJOB = {"metadata": _METADATA, "spec": {"tasks": [{"template": {"spec": _POD}}], "volumes": [{}]}}
_CONFIG_MAP: dict[str, Any] = {"metadata": _METADATA, "data": {}, "binaryData": {}}


def template_problems(
    dijob: Mapping[str, Any], config_map: Mapping[str, Any] | None, needs_script: bool = True
) -> Iterator[Problem]:
    """Yield all that is wrong, with paths into the YAML.

    If something is not even a list or a mapping where it has to be, only that is said.
    That no container would run the script is wrong if the job `needs_script`.
    """
    misshapen = list(_misshapen(dijob, _DIJOB, ""))
    misshapen += _misshapen(config_map or {}, _CONFIG_MAP, "ConfigMap")
    if misshapen or not dijob.get("spec"):
        yield from misshapen or [Problem("spec", "is missing")]
        return
    yield from metadata_problems(dijob.get("metadata") or {})
    yield from _spec_problems(dijob["spec"])
    yield from _task_problems(dijob["spec"])
    for _, where, container in each_container(dijob["spec"]):
        yield from _container_problems(container, where)
    yield from _mount_problems(dijob["spec"])
    if config_map is not None:
        yield from _config_map_problems(dijob["spec"], config_map)
    if needs_script:
        yield from _script_problems(dijob["spec"], config_map)


def _misshapen(value: Any, shape: Any, where: str) -> Iterator[Problem]:
    if value is None:  # a key with nothing behind it
        return
    wanted = type(shape)
    if not isinstance(value, wanted):
        kind = "list" if wanted is list else "mapping"
        yield Problem(where, f"is {value!r}; it has to be a {kind}")
    elif isinstance(shape, list):
        for number, item in enumerate(value):
            for inner in shape:
                if item is None:
                    yield Problem(f"{where}[{number}]", "is empty")
                yield from _misshapen(item, inner, f"{where}[{number}]")
    else:
        for key, inner in shape.items():
            yield from _misshapen(value.get(key), inner, f"{where}.{key}".lstrip("."))


def metadata_problems(metadata: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield what is wrong with a DIJob's name."""
    name = metadata.get("name")
    if not name:
        hint = "the jobs' names begin with it"
        yield Problem("metadata.name", "is missing", hint)
    elif not _LABEL.fullmatch(str(name)):
        yield Problem("metadata.name", f"is {name!r}; {_NAME_RULE}", _NAME_REASON)


_NAME_RULE = "it may hold a-z, 0-9 and, inside, '-'"
_NAME_REASON = "it becomes part of the pods' host names and of a Service's name"


def _spec_problems(spec: Mapping[str, Any]) -> Iterator[Problem]:
    yield from _unknown(spec, _SPEC_KEYS, "spec")
    if spec.get("preemptible"):
        yield Problem(
            "spec.preemptible",
            "is true, with which DI-orchestrator's operator crashes before it makes a pod",
            "leave it out, or set it to false",
        )
    for key, allowed in _ENUMS.items():
        yield from _not_among(spec, key, allowed, f"spec.{key}")
    project = spec.get("projectPath")
    if project is not None and not (isinstance(project, str) and project.startswith("/")):
        yield Problem("spec.projectPath", f"is {project!r}; it has to be an absolute path")
    if not spec.get("tasks"):
        yield Problem("spec.tasks", "holds no task", "a serial training is one, of type none")


def _task_problems(spec: Mapping[str, Any]) -> Iterator[Problem]:
    types: dict[str, str] = {}
    names: dict[str, str] = {}
    for task, where in each_task(spec):
        yield from _one_task(task, where)
        kind, name = task.get("type"), task_name(task)
        if kind in _TYPES[:-1] and types.setdefault(kind, where) != where:
            what = f"is a second task of type {kind} (the first is {types[kind]})"
            hint = "the operator takes one of each type; give the one more replicas, or type none"
            yield Problem(where, what, hint)
        elif name and names.setdefault(name, where) != where:
            yield Problem(f"{where}.name", f"{name!r} is the name of {names[name]} too")


def _one_task(task: Mapping[str, Any], where: str) -> Iterator[Problem]:
    yield from _unknown(task, _TASK_KEYS, where)
    if not task.get("type"):
        yield Problem(f"{where}.type", "is missing", f"it is one of {', '.join(_TYPES)}")
    yield from _not_among(task, "type", _TYPES, f"{where}.type")
    name, replicas = task.get("name"), task.get("replicas", 1)
    if task.get("type") == "none" and not name:
        yield Problem(f"{where}.name", "is missing", "a task of type none needs a name")
    elif name and not _LABEL.fullmatch(str(name)):
        yield Problem(f"{where}.name", f"is {name!r}; {_NAME_RULE}", _NAME_REASON)
    if type(replicas) is not int or replicas < 1:
        yield Problem(f"{where}.replicas", f"is {replicas!r}; it has to be a whole number above 0")
    if not containers_of(task):
        yield Problem(f"{where}.template.spec.containers", "holds no container")


def _container_problems(container: Mapping[str, Any], where: str) -> Iterator[Problem]:
    for key in ("name", "image"):
        if not container.get(key):
            yield Problem(f"{where}.{key}", "is missing")
    for number, item in enumerate(container.get("env") or []):
        place = f"{where}.env[{number}]"
        yield from _name_problems(item, place)
        if not isinstance(item.get("value", ""), (str, type(None))):
            what = f"is {item['value']!r}; Kubernetes wants a text there"
            yield Problem(f"{place}.value", what, f'write it in quotes: "{item["value"]}"')
    for number, item in enumerate(container.get("volumeMounts") or []):
        yield from _name_problems(item, f"{where}.volumeMounts[{number}]")
    for key in ("command", "args"):
        for number, item in enumerate(container.get(key) or []):
            if not isinstance(item, str):
                what = f"is {item!r}; Kubernetes wants a text there"
                yield Problem(f"{where}.{key}[{number}]", what, f'write it in quotes: "{item}"')


def _name_problems(item: Mapping[str, Any], where: str) -> Iterator[Problem]:
    name = item.get("name")
    if not name:
        yield Problem(f"{where}.name", "is missing")
    elif not isinstance(name, str):
        yield Problem(f"{where}.name", f"is {name!r}; Kubernetes wants a text there")


def _names(items: Sequence[Mapping[str, Any]] | None) -> set[str]:
    return {str(item.get("name")) for item in items or []}


def _mount_problems(spec: Mapping[str, Any]) -> Iterator[Problem]:
    shared = _names(spec.get("volumes"))
    for task, where, container in each_container(spec):
        own = _names(task["template"]["spec"].get("volumes"))
        for number, mount in enumerate(container.get("volumeMounts") or []):
            name, place = str(mount.get("name")), f"{where}.volumeMounts[{number}]"
            if name not in own | shared:
                hint = did_you_mean(name, own | shared)
                what = f"mounts {name!r}, and there is no such volume"
                yield Problem(place, what, hint or "declare it under the pod's volumes")
            if not mount.get("mountPath"):
                yield Problem(f"{place}.mountPath", "is missing")


def _config_map_problems(
    spec: Mapping[str, Any], config_map: Mapping[str, Any]
) -> Iterator[Problem]:
    name = config_map_name(config_map)
    found = {str(item.get("name")) for item in config_map_references(spec)}
    if not name:
        yield Problem("ConfigMap metadata.name", "is missing", "the tasks' volumes name it")
    elif name not in found:
        what = f"nothing in the DIJob refers to {name!r}, so no container would see the script"
        hint = did_you_mean(name, found) or "mount it as a volume"
        yield Problem("ConfigMap metadata.name", what, hint)
    blank = blank_keys(config_map)
    if len(blank) > 1 and SCRIPT_KEY not in blank:
        what = f"several keys are empty: {', '.join(blank)}"
        yield Problem("ConfigMap data", what, "leave one empty: the script is put there")
    for key, value in (config_map.get("data") or {}).items():
        if not isinstance(value, (str, type(None))):
            what = f"is {value!r}; Kubernetes wants a text there"
            yield Problem(f"ConfigMap data.{key}", what, "write it in quotes")


def _script_problems(
    spec: Mapping[str, Any], config_map: Mapping[str, Any] | None
) -> Iterator[Problem]:
    """Say so if every task has a command and none can be meant to run the script."""
    mains = [main_container(task) for task, _ in each_task(spec) if containers_of(task)]
    if not all(item.get("command") or item.get("args") for item in mains):
        return  # what the image does by itself cannot be known
    key = script_key(config_map)
    folders = [CONFIG_FOLDER]
    if config_map is not None:
        folders = list(mount_paths(spec, config_map_name(config_map)))
    needles = {key, *folders}
    if mains and not any(needle in _said_in(item) for item in mains for needle in needles):
        path = f"{folders[0]}/{key}" if folders else key
        hint = f"have a container run it, as in `python -u {path}`"
        where = "spec.tasks[0].template.spec.containers[0]"
        yield Problem(where, f"no task's command mentions the script, {path}", hint)


def _said_in(container: Mapping[str, Any]) -> str:
    texts = [*(container.get("command") or []), *(container.get("args") or [])]
    texts += [item.get("value", "") for item in container.get("env") or []]
    return "\n".join(str(text) for text in texts)


def _unknown(tree: Mapping[str, Any], known: set[str], where: str) -> Iterator[Problem]:
    for key in tree:
        if key not in known:
            yield Problem(f"{where}.{key}", "there is no such field", did_you_mean(str(key), known))


def _not_among(
    tree: Mapping[str, Any], key: str, allowed: Sequence[str], where: str
) -> Iterator[Problem]:
    value = tree.get(key)
    if value is not None and value not in allowed:
        yield Problem(where, f"is {value!r}; {did_you_mean(str(value), allowed)}")
