"""The nodes that a cluster may still start, as whoever made the cluster says.

Ray's autoscaler starts nodes for work that waits, so a sweep that only counts the nodes that
are there would never make it start one.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ditk_ray.cluster.nodes import Node
from ditk_ray.config.nearest import did_you_mean
from ditk_ray.config.quantities import parse_bytes
from ditk_ray.errors import BadConfigError, Problem

WORKER_GROUPS = "DITK_RAY_WORKER_GROUPS"
"""The environment variable, set on the head: a JSON list of groups."""

_KEYS = ("name", "min", "max", "cpu", "gpu", "memory")


@dataclass(frozen=True)
class WorkerGroup:
    """Nodes of one kind, of which there are between `min` and `max`; `memory` is in bytes."""

    name: str
    max: int
    min: int = 0
    cpu: float = 0.0
    gpu: float = 0.0
    memory: int = 0

    def resources(self) -> dict[str, float]:
        """Return what one of its nodes has, by Ray's names."""
        amounts = {"CPU": self.cpu, "GPU": self.gpu, "memory": float(self.memory)}
        return {name: amount for name, amount in amounts.items() if amount}

    def has(self, node: Node) -> bool:
        """Say whether a node is of this group: by its label, else by its CPUs and GPUs."""
        if node.group:
            return node.group == self.name
        return all(
            node.resources.get(name, 0.0) == amount
            for name, amount in (("CPU", self.cpu), ("GPU", self.gpu))
        )


def worker_groups(environment: Mapping[str, str] = os.environ) -> tuple[WorkerGroup, ...]:
    """Return the groups that the environment tells of, or none.

    Raises `BadConfigError` with all that is wrong with them.
    """
    text = environment.get(WORKER_GROUPS, "").strip()
    if not text:
        return ()
    try:
        given = json.loads(text)
    except ValueError as error:
        raise BadConfigError(Problem(WORKER_GROUPS, f"is no JSON: {error}", _HINT)) from None
    if not isinstance(given, list):
        raise BadConfigError(Problem(WORKER_GROUPS, "is no list", _HINT))
    problems = [
        problem for number, one in enumerate(given) for problem in _problems(f"[{number}]", one)
    ]
    if problems:
        raise BadConfigError(problems)
    return tuple(_group(one) for one in given)


def nodes_to_come(groups: Sequence[WorkerGroup], present: Sequence[Node]) -> list[Node]:
    """Return an entry for each group that may still grow, given the nodes that are there."""
    found = []
    for group in groups:
        more = group.max - sum(group.has(node) for node in present)
        if more > 0:
            found.append(Node(group.name, group.resources(), group=group.name, to_come=more))
    return found


def _problems(place: str, given: Any) -> list[Problem]:
    where = f"{WORKER_GROUPS}{place}"
    if not isinstance(given, dict):
        return [Problem(where, "is no object", _HINT)]
    problems = [
        Problem(f"{where}.{key}", "is not known", did_you_mean(key, _KEYS))
        for key in given
        if key not in _KEYS
    ]
    problems += [
        Problem(f"{where}.{key}", "is missing", _HINT)
        for key in ("name", "max")
        if key not in given
    ]
    if not isinstance(given.get("name", ""), str):
        problems.append(Problem(f"{where}.name", f"is {given['name']!r}, no text"))
    problems += [
        Problem(f"{where}.{key}", f"is {given[key]!r}; it has to be {what}")
        for key, fits, what in _AMOUNTS
        if key in given and not fits(given[key])
    ]
    return problems


def _group(given: Mapping[str, Any]) -> WorkerGroup:
    return WorkerGroup(
        name=given["name"],
        max=given["max"],
        min=given.get("min", 0),
        cpu=float(given.get("cpu", 0)),
        gpu=float(given.get("gpu", 0)),
        memory=parse_bytes(given.get("memory") or 0),
    )


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_number(value: Any) -> bool:
    is_plain = isinstance(value, (int, float)) and not isinstance(value, bool)
    return is_plain and 0 <= value < float("inf")


def _is_memory(value: Any) -> bool:
    try:
        parse_bytes(value or 0)
    except ValueError:
        return False
    return not isinstance(value, bool)


_HINT = """it has to be like [{"name": "gpu", "min": 0, "max": 8, "cpu": 8, "gpu": 1}]"""
_AMOUNTS = (
    ("min", _is_count, "a whole number, zero or more"),
    ("max", _is_count, "a whole number, zero or more"),
    ("cpu", _is_number, "a number, zero or more"),
    ("gpu", _is_number, "a number, zero or more"),
    ("memory", _is_memory, "an amount such as '32G'"),
)
