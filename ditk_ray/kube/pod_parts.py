"""The parts of a DIJob's spec: its tasks and their containers.

Everything is plain data as YAML gives it, in which a key may have nothing behind it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

MAIN_CONTAINER = "di-container"


def each_task(spec: Mapping[str, Any]) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield the tasks, each with its path."""
    for number, task in enumerate(spec.get("tasks") or []):
        yield task, f"spec.tasks[{number}]"


def task_name(task: Mapping[str, Any]) -> str:
    """Return a task's name, which is its type if it has none."""
    return str(task.get("name") or task.get("type") or "")


def containers_of(task: Mapping[str, Any], kind: str = "containers") -> list[dict[str, Any]]:
    """Return the containers of a task's pods."""
    pod = (task.get("template") or {}).get("spec") or {}
    return list(pod.get(kind) or [])


def each_container(
    spec: Mapping[str, Any],
) -> Iterator[tuple[dict[str, Any], str, dict[str, Any]]]:
    """Yield a task, a container's path and the container, for all, those that run first too."""
    for task, where in each_task(spec):
        for kind in ("containers", "initContainers"):
            for number, container in enumerate(containers_of(task, kind)):
                yield task, f"{where}.template.spec.{kind}[{number}]", container


def main_container(task: Mapping[str, Any]) -> dict[str, Any]:
    """Return the container that trains: the one with the operator's name for it, or the first."""
    containers = containers_of(task)
    named = [item for item in containers if item.get("name") == MAIN_CONTAINER]
    return (named or containers)[0]
