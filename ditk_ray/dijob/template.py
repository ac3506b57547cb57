"""A template for DIJobs, a file with a DIJob and maybe a ConfigMap, and what is wrong with it.

The API server prunes fields that it does not know and the operator fails jobs that it
does not like, or hangs or crashes: none of them says much. What the API server itself refuses
with the field's name, such as a number where a text belongs, is left to it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from ditk_ray.dijob.jobs import containers_of, each_container, each_task, task_name
from ditk_ray.errors import BadConfigError, Problem
from ditk_ray.kube.objects import CONFIG_MAPS, DIJOBS
from ditk_ray.util import dotted
from ditk_ray.util.suggest import did_you_mean

SCRIPT_KEY = "config.py"
CONFIG_FOLDER = "/etc/ditk-ray"
"""Where the script is mounted if the template has no ConfigMap for it."""

_VERSIONS = {each.kind: each.api_version for each in (DIJOBS, CONFIG_MAPS)}
_SPEC_KEYS = {"priority", "cleanPodPolicy", "preemptible", "backoffLimit", "volumes", "tasks"}
_SPEC_KEYS |= {"projectPath"}  # which is ours, and not sent
_TASK_KEYS = {"replicas", "type", "name", "template"}
_TYPES = ("learner", "collector", "evaluator", "none")
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
_REFERENCES = ("configMap", "configMapRef", "configMapKeyRef")


@dataclass(frozen=True)
class DijobTemplate:
    """A template that was checked. Nothing changes what it holds.

    `dijob` has no `projectPath` any more, which is none of Kubernetes' fields:
    it is in `project_path`.
    """

    source: str
    dijob: dotted.Tree
    config_map: dotted.Tree | None = None
    project_path: str | None = None

    @property
    def name(self) -> str:
        return str(self.dijob["metadata"]["name"])

    @property
    def namespace(self) -> str | None:
        return self.dijob["metadata"].get("namespace") or None

    @property
    def script_key(self) -> str:
        """The key of the ConfigMap that the script goes into."""
        blank = blank_keys(self.config_map)
        return SCRIPT_KEY if SCRIPT_KEY in blank or not blank else blank[0]


def read_template(path: Path) -> DijobTemplate:
    """Read a template; raises `BadConfigError` with all that is wrong with it."""
    try:
        text = path.expanduser().read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadConfigError(Problem(str(path), f"cannot be read: {error}")) from error
    return parse_template(text, str(path))


def parse_template(text: str, source: str) -> DijobTemplate:
    """Read a template from its text; `source` is what it is called in errors."""
    try:
        documents = [item for item in yaml.safe_load_all(text) if item is not None]
    except (yaml.YAMLError, ValueError) as error:  # of an impossible date, say
        raise BadConfigError(Problem(source, f"is not YAML: {error}")) from error
    raise_problems(source, _kind_problems(documents))
    by_kind = {item["kind"]: item for item in documents}
    dijob, config_map = by_kind["DIJob"], by_kind.get("ConfigMap")
    raise_problems(source, template_problems(dijob, config_map))
    spec = {key: value for key, value in dijob["spec"].items() if key != "projectPath"}
    project = dijob["spec"].get("projectPath")
    return DijobTemplate(source, {**dijob, "spec": spec}, config_map, project or None)


def _kind_problems(documents: list[Any]) -> Iterator[Problem]:
    found = []
    for number, document in enumerate(documents, start=1):
        where = f"document {number}"
        kind = document.get("kind") if isinstance(document, dict) else None
        if not isinstance(kind, str) or kind not in _VERSIONS:
            what = f"its kind is {kind!r}; a template holds a DIJob and at most one ConfigMap"
            yield Problem(where, what, "create other objects once, with kubectl")
            continue
        if document.get("apiVersion") != _VERSIONS[kind]:
            yield Problem(f"{where}.apiVersion", f"has to be {_VERSIONS[kind]!r}")
        if kind in found:
            yield Problem(where, f"is a second {kind}", "a template holds one of each kind")
        found.append(kind)
    if "DIJob" not in found:
        yield Problem("the file", "holds no DIJob")


def raise_problems(source: str, problems: Iterable[Problem]) -> None:
    """Raise BadConfigError if there are problems, which are all in `source`."""
    found = [Problem(f"{source}: {each.where}", each.what, each.hint) for each in problems]
    if found:
        raise BadConfigError(found)


def template_problems(
    dijob: Mapping[str, Any], config_map: Mapping[str, Any] | None = None
) -> Iterator[Problem]:
    """Yield all that is wrong, with paths into the YAML.

    If something is not even a list or a mapping where it has to be, only that is said.
    """
    misshapen = list(_misshapen(dijob, _DIJOB, ""))
    misshapen += _misshapen(config_map or {}, _CONFIG_MAP, "ConfigMap")
    if misshapen or not dijob.get("spec"):
        yield from misshapen or [Problem("spec", "is missing")]
        return
    yield from label_problems((dijob.get("metadata") or {}).get("name"), "metadata.name")
    yield from _spec_problems(dijob["spec"])
    yield from _task_problems(dijob["spec"])
    for _, where, container in each_container(dijob["spec"]):
        if not container.get("image"):
            yield Problem(f"{where}.image", "is missing")
    yield from _mount_problems(dijob["spec"])
    if config_map is not None:
        yield from _config_map_problems(dijob["spec"], config_map)


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


def label_problems(name: Any, where: str) -> Iterator[Problem]:
    """Yield what is wrong with the name of a job or a task, which pods have in theirs."""
    if not name:
        yield Problem(where, "is missing")
    elif not _LABEL.fullmatch(str(name)):
        hint = "it becomes part of the pods' host names and of a Service's name"
        yield Problem(where, f"is {name!r}; it may hold a-z, 0-9 and, inside, '-'", hint)


def _spec_problems(spec: Mapping[str, Any]) -> Iterator[Problem]:
    yield from _unknown(spec, _SPEC_KEYS, "spec")
    if spec.get("preemptible"):
        what = "is true, which crashes DI-orchestrator's operator before it creates a pod"
        yield Problem("spec.preemptible", what)
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
            hint = "the operator allows one of each type: set its replicas, or use type none"
            yield Problem(where, what, hint)
        elif name and names.setdefault(name, where) != where:
            yield Problem(f"{where}.name", f"{name!r} is the name of {names[name]} too")


def _one_task(task: Mapping[str, Any], where: str) -> Iterator[Problem]:
    yield from _unknown(task, _TASK_KEYS, where)
    kind, name = task.get("type"), task.get("name")
    if kind not in _TYPES:
        yield Problem(f"{where}.type", f"is {kind!r}; {did_you_mean(str(kind), _TYPES)}")
    if name or kind == "none":
        yield from label_problems(name, f"{where}.name")
    replicas = task.get("replicas", 1)
    if type(replicas) is not int or replicas < 1:
        yield Problem(f"{where}.replicas", f"is {replicas!r}; it has to be a whole number above 0")
    if not containers_of(task):
        yield Problem(f"{where}.template.spec.containers", "holds no container")


def _names(items: Sequence[Mapping[str, Any]] | None) -> set[str]:
    return {str(item.get("name")) for item in items or []}


def _mount_problems(spec: Mapping[str, Any]) -> Iterator[Problem]:
    for task, where, container in each_container(spec):
        volumes = _names(spec.get("volumes")) | _names(task["template"]["spec"].get("volumes"))
        for number, mount in enumerate(container.get("volumeMounts") or []):
            name = str(mount.get("name"))
            if name not in volumes:
                hint = did_you_mean(name, volumes) or "declare it under the pod's volumes"
                what = f"mounts {name!r}, and there is no such volume"
                yield Problem(f"{where}.volumeMounts[{number}]", what, hint)


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


def _unknown(tree: Mapping[str, Any], known: set[str], where: str) -> Iterator[Problem]:
    for key in tree:
        if key not in known:
            yield Problem(f"{where}.{key}", "there is no such field", did_you_mean(str(key), known))


def blank_keys(config_map: Mapping[str, Any] | None) -> list[str]:
    """Return the keys of a ConfigMap that hold nothing, or nothing but white space."""
    data = (config_map or {}).get("data") or {}
    return [str(key) for key, value in data.items() if not str(value or "").strip()]


def config_map_name(config_map: Mapping[str, Any]) -> str:
    """Return what the DIJob calls it; empty if it has no name."""
    return str((config_map.get("metadata") or {}).get("name") or "")


def config_map_references(tree: Any) -> Iterator[dict[str, Any]]:
    """Yield everything in a tree that names a ConfigMap: in volumes and in environments."""
    if isinstance(tree, Mapping):
        for key, value in tree.items():
            if key in _REFERENCES and isinstance(value, dict):
                yield value
            else:
                yield from config_map_references(value)
    elif isinstance(tree, list):
        for item in tree:
            yield from config_map_references(item)
