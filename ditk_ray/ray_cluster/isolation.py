"""Proving that wrapped commands are kept apart: what each sees, and whether any share too much."""

from __future__ import annotations

import contextlib
import json
import math
import os
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from ditk_ray.config.resources import TrialResources
from ditk_ray.ray_cluster.commands import WrappedCommand, divided
from ditk_ray.ray_cluster.nodes import Node
from ditk_ray.ray_cluster.wrap import CommandRun, WrappedRun

_A_LITTLE = 1e-6


PROBE = """
import json, os, resource, socket, time
from pathlib import Path
print(json.dumps({
    "host": socket.gethostname(),
    "machine": Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip(),
    "cores": sorted(os.sched_getaffinity(0)),
    "cuda": os.environ.get("CUDA_VISIBLE_DEVICES"),
    "memory": resource.getrlimit(resource.RLIMIT_DATA)[0],
}), flush=True)
while True:
    time.sleep(60)
"""
"""What a worker runs: it reports what it may use of its machine, and stays until it is ended.

All containers of a machine have its boot_id in common, and no other machine has it.
"""


@dataclass(frozen=True)
class View:
    """What one worker was given, and what it says it sees."""

    number: int
    node: Node
    resources: TrialResources
    seen: Mapping[str, Any]

    @property
    def cores(self) -> list[int]:
        return list(self.seen["cores"])

    @property
    def gpus(self) -> list[str]:
        return [gpu for gpu in (self.seen["cuda"] or "").split(",") if gpu]


def probes(
    nodes: Sequence[Node], resources: TrialResources | None, workers: int | None
) -> list[WrappedCommand]:
    """Return the commands that test all nodes at once.

    Each node gets as many as it holds with these resources or, without, is divided among so
    many workers, two by default.
    """
    made: list[WrappedCommand] = []
    for node in nodes:
        share = resources or divided([node], workers or 2)
        for _ in range(node.holds(share) if node.resources.get("CPU") else 0):
            given = {"name": str(len(made)), "py_args": ["-c", PROBE], "node": {"node_id": node.id}}
            made.append(WrappedCommand.sharing(share, **given))
    return made


class ProbeRun:
    """Runs probes until all have reported; `views` are their reports, `failed` those that ended.

    `waits` is called with those that do not run yet.
    """

    def __init__(
        self,
        commands: Sequence[WrappedCommand],
        nodes: Sequence[Node],
        waits: Callable[[Sequence[CommandRun]], None],
    ) -> None:
        self.waits = waits
        self._nodes = {node.id: node for node in nodes}
        self._said: dict[int, bytes] = defaultdict(bytes)
        self.views: list[View] = []
        self.failed: list[CommandRun] = []
        self._run = WrappedRun(commands, nodes, self, folder=os.sep, is_concurrent=True)

    def follow(self) -> None:
        self._run.follow()
        self.views.sort(key=lambda view: view.number)

    def begins(self, run: CommandRun) -> None:
        """Wait for what it says."""

    def prints(self, run: CommandRun, data: bytes) -> None:
        """Take in what it sees; the last one ends them all."""
        self._said[run.number] += data
        with contextlib.suppress(ValueError):  # not whole yet, or why it cannot look
            seen = json.loads(self._said[run.number])
            node = self._nodes[run.command.node["node_id"]]
            self.views.append(View(run.number, node, run.command.share, seen))
        if len(self.views) == len(self._run.runs):
            self._run.cancel()

    def ends(self, run: CommandRun) -> None:
        """Note one that ended unasked; the others would wait for it for ever."""
        if run.state == "failed":
            self.failed.append(run)
            self._run.cancel()


def find_faults(views: Sequence[View]) -> list[str]:
    """Return a sentence for all that is not as it should be among workers that ran at once."""
    return [*_own_faults(views), *_shared(views)]


def _own_faults(views: Sequence[View]) -> Iterator[str]:
    for view in views:
        given, cores = view.resources, len(view.cores)
        if given.cpu and cores != math.ceil(given.cpu - _A_LITTLE):
            yield f"[{view.number}] has {given.cpu:g} CPU and may use {cores} cores"
        if len(view.gpus) != math.ceil(given.gpu):
            yield f"[{view.number}] has {given.gpu:g} GPU and sees {len(view.gpus)}"
        if given.memory and view.seen["memory"] != given.memory:
            yield f"[{view.number}] may use more memory than it was given"


def _shared(views: Sequence[View]) -> Iterator[str]:
    shares: dict[tuple[str, str, int | str], list[tuple[View, float]]] = defaultdict(list)
    for view in views:
        for core in view.cores if view.resources.cpu else ():  # without CPU it may run anywhere
            shares[view.seen["machine"], "core", core].append((view, view.resources.cpu % 1 or 1.0))
        for gpu in view.gpus:  # which has a number of its own in each pod, hence by host
            part = view.resources.gpu / len(view.gpus)
            shares[view.seen["host"], "GPU", gpu].append((view, part))
    for (_, kind, number), sharing in shares.items():
        # Of each worker's cores one at most is a fraction.
        pairs = combinations([set(view.cores) for view, _ in sharing if kind == "core"], 2)
        is_too_much = sum(part for _, part in sharing) > 1 + _A_LITTLE
        if is_too_much or any(len(a & b) > 1 for a, b in pairs):
            hosts = ", ".join(dict.fromkeys(view.seen["host"] for view, _ in sharing))
            yield f"{hosts}: workers share {kind} {number}"
