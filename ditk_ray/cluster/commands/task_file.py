"""Reading a file of tasks: commands in YAML, each with its resources, node and environment."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast, get_args

from ditk_ray.cluster.commands.wrapped_command import (
    PYTHON,
    ChoiceKind,
    NodeChoice,
    WrappedCommand,
    split_command,
)
from ditk_ray.config.nearest import did_you_mean
from ditk_ray.config.resources import TrialResources, parse_resources
from ditk_ray.errors import BadConfigError, Problem
from ditk_ray.kube.yaml_text import read_yaml

_TOP_KEYS = ("concurrent", "tasks")
_TASK_KEYS = (
    *("name", "command", "py_args", "num_cpus", "num_gpus", "memory"),
    *("resources", "node", "env", "cwd"),
)
_KINDS: tuple[str, ...] = get_args(ChoiceKind)
_PRODUCT = re.compile(r"\d+(\.\d+)?(\s*\*\s*\d+(\.\d+)?)*")
_SET_BY_US = "CUDA_VISIBLE_DEVICES"
_RAYS_OWN = ("CPU", "GPU", "memory", "object_store_memory")
_OWN_HINT = "what every node has is asked for by num_cpus, num_gpus and memory"
_SHIPPED = "packages belong into the nodes' image, and code is shipped by `ditk-ray submit`"


@dataclass(frozen=True)
class TaskFile:
    """The tasks of a file; `is_concurrent` if none may begin before all can."""

    commands: tuple[WrappedCommand, ...]
    is_concurrent: bool


def read_task_file(path: Path) -> TaskFile:
    """Read and check a file of tasks; raises `BadConfigError` with all that is wrong in it."""
    try:
        given = read_yaml(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadConfigError(Problem(f"--task_cfg {path}", str(error.strerror))) from None
    except ValueError as error:
        raise BadConfigError(Problem(f"--task_cfg {path}", f"is no YAML: {error}")) from None
    reader = _Reader(str(path))
    found = reader.file(given)
    if reader.problems:
        raise BadConfigError(reader.problems)
    return found


class _Reader:
    """Reads a file's values and gathers what is wrong with them, each with its place."""

    def __init__(self, source: str) -> None:
        self.problems: list[Problem] = []
        self._source = source

    def file(self, given: Any) -> TaskFile:
        given = self._mapping(given, "", (*_TOP_KEYS, "pip", "py_modules"))
        for key in ("pip", "py_modules"):
            if given.get(key):
                self._wrong(key, "is not supported", _SHIPPED)
        is_concurrent = given.get("concurrent", False)
        if not isinstance(is_concurrent, bool):
            self._wrong("concurrent", f"is {is_concurrent!r}; it has to be true or false")
        tasks = given.get("tasks")
        if not isinstance(tasks, list) or not tasks:
            self._wrong("tasks", "has to be a list of one task or more")
            tasks = []
        commands = tuple(self._task(task, number) for number, task in enumerate(tasks))
        self._check_names(commands)
        for number, command in enumerate(commands if is_concurrent is True else ()):
            if not command.resources.for_ray():
                what = "has to be more than 0 where all are to run at once"
                self._wrong(f"tasks[{number}].num_cpus", what, "their places are reserved by it")
        return TaskFile(commands, is_concurrent is True)

    def _task(self, given: Any, number: int) -> WrappedCommand:
        place = f"tasks[{number}]"
        task = self._mapping(given, place, _TASK_KEYS)
        return WrappedCommand(
            name=self._text(task, "name", place) or str(number),
            arguments=self._arguments(task, place),
            resources=self._resources(task, place),
            node=self._node(task.get("node"), f"{place}.node"),
            env=self._env(task.get("env"), f"{place}.env"),
            folder=self._text(task, "cwd", place),
        )

    def _check_names(self, commands: tuple[WrappedCommand, ...]) -> None:
        first: dict[str, int] = {}
        for number, command in enumerate(commands):
            other = first.setdefault(command.name, number)
            if other != number:
                what = f"is {command.name!r}, as is tasks[{other}]'s"
                self._wrong(f"tasks[{number}].name", what, "give each task its own name")

    def _arguments(self, task: Mapping[str, Any], place: str) -> tuple[str, ...]:
        given = [key for key in ("command", "py_args") if task.get(key)]
        if len(given) != 1:
            what = "has to have either command or py_args"
            self._wrong(place, what, "command: python a.py, or py_args: a.py for Ray's own Python")
            return ("",)
        (key,) = given
        arguments = self._argument_list(task[key], f"{place}.{key}")
        return (PYTHON, *arguments) if key == "py_args" else arguments

    def _argument_list(self, given: Any, place: str) -> tuple[str, ...]:
        if isinstance(given, list) and all(isinstance(item, (str, int, float)) for item in given):
            return tuple(str(item) for item in given)
        if not isinstance(given, str):
            self._wrong(place, f"is {given!r}; it has to be a text or a list of arguments")
            return ("",)
        try:
            return split_command(given)
        except ValueError as error:
            self._wrong(place, str(error))
            return ("",)

    def _resources(self, task: Mapping[str, Any], place: str) -> TrialResources:
        amounts = {
            "cpu": self._number(task, "num_cpus", place, 1.0),
            "gpu": self._number(task, "num_gpus", place, 0.0),
            "memory": _product(task.get("memory")),
            "custom": task.get("resources") or {},
        }
        custom = amounts["custom"] if isinstance(amounts["custom"], Mapping) else {}
        for name in filter(custom.__contains__, _RAYS_OWN):
            self._wrong(f"{place}.resources.{name}", "is none of a node's own names", _OWN_HINT)
        names = {"cpu": "num_cpus", "gpu": "num_gpus", "custom": "resources"}
        made = TrialResources()
        for key, value in amounts.items():
            try:  # one after the other: each has its own place
                parse_resources({key: value})
            except ValueError as error:
                self._wrong(f"{place}.{names.get(key, key)}", str(error))
                amounts = {**amounts, key: getattr(made, key)}
        return parse_resources(amounts)

    def _number(self, task: Mapping[str, Any], key: str, place: str, default: float) -> float:
        value = _product(task.get(key, default))
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            self._wrong(f"{place}.{key}", f"is {value!r}; it has to be a number, zero or more")
            return default
        return float(value)

    def _node(self, given: Any, place: str) -> NodeChoice:
        if given is None:
            return NodeChoice()
        node = self._mapping(given, place, ("specific", *_KINDS[1:]))
        named = [key for key in _KINDS if node.get(key)]
        kind = node.get("specific") or (named[0] if named else "any")
        if kind not in _KINDS:
            self._wrong(f"{place}.specific", f"is {kind!r}", did_you_mean(str(kind), _KINDS))
        elif kind != "any" and named != [kind]:
            self._wrong(place, f"has to have {kind}, and no other", f"{kind}: NAME")
        elif kind == "resource" and node.get(kind) in _RAYS_OWN:
            self._wrong(f"{place}.{kind}", f"is {node[kind]!r}", _OWN_HINT)
        elif kind != "any":
            return NodeChoice(cast(ChoiceKind, kind), self._text(node, kind, place))
        return NodeChoice()

    def _env(self, given: Any, place: str) -> dict[str, str]:
        found = {}
        for name, value in self._mapping(given or {}, place, ()).items():
            if name == _SET_BY_US:
                self._wrong(f"{place}.{name}", "is set by what num_gpus gives to the task")
            elif isinstance(value, bool) or not isinstance(value, (str, int, float)):
                self._wrong(f"{place}.{name}", f"is {value!r}; it has to be a text", "quote it")
            else:
                found[str(name)] = str(value)
        return found

    def _text(self, given: Mapping[str, Any], key: str, place: str) -> str:
        value = given.get(key, "")
        if not isinstance(value, str):
            self._wrong(f"{place}.{key}", f"is {value!r}; it has to be a text", "quote it")
            return ""
        return value

    def _mapping(self, given: Any, place: str, known: tuple[str, ...]) -> Mapping[str, Any]:
        if not isinstance(given, Mapping):
            self._wrong(place, f"is {given!r}; it has to be keys with values")
            return {}
        for key in given:
            if known and key not in known:
                where = f"{place}.{key}" if place else str(key)
                self._wrong(where, "is not known", did_you_mean(str(key), known))
        return given

    def _wrong(self, place: str, what: str, hint: str = "") -> None:
        self.problems.append(
            Problem(f"{self._source}: {place}" if place else self._source, what, hint)
        )


def _product(value: Any) -> Any:
    """Return what a product such as `10*1024*1024` amounts to, and all else as it is."""
    if not isinstance(value, str) or not _PRODUCT.fullmatch(value.strip()):
        return value
    return math.prod(float(factor) for factor in value.split("*"))
