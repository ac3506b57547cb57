"""Proving that wrapped commands are kept apart: what each sees, and whether any share too much."""

from __future__ import annotations

import json
import math
import os
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ditk_ray.cluster.commands import isolation_probe
from ditk_ray.cluster.commands.command_placement import divided
from ditk_ray.cluster.commands.wrapped_command import PYTHON, NodeChoice, WrappedCommand
from ditk_ray.cluster.commands.wrapped_run import CommandRun, WrappedRun
from ditk_ray.cluster.nodes import Node
from ditk_ray.config.resources import TrialResources

_A_LITTLE = 1e-6
_WORKERS = 2


@dataclass(frozen=True)
class View:
    """What one worker was given, and what it says it sees."""

    number: int
    node: Node
    resources: TrialResources
    seen: Mapping[str, Any]

    @property
    def host(self) -> str:
        """The name of the machine, or of the pod: GPUs have numbers of their own in each."""
        return str(self.seen["host"])

    @property
    def machine(self) -> str:
        """The machine whose cores these are; several pods of it have names of their own."""
        return str(self.seen["machine"])

    @property
    def cores(self) -> list[int]:
        """The cores that it may run on."""
        return list(self.seen["cores"])

    @property
    def gpus(self) -> list[str]:
        """The GPUs that it sees."""
        return [gpu for gpu in (self.seen["cuda"] or "").split(",") if gpu]


def probes(
    nodes: Sequence[Node], resources: TrialResources | None, workers: int | None
) -> list[WrappedCommand]:
    """Return the commands that test all nodes at once.

    Each node gets as many as it holds with these resources or, without, is divided among so
    many workers.
    """
    source = Path(isolation_probe.__file__).read_text(encoding="utf-8")
    made: list[WrappedCommand] = []
    for node in nodes:
        if not node.resources.get("CPU"):
            continue
        share = resources or divided([node], workers or _WORKERS)
        for _ in range(node.holds(share)):
            choice = NodeChoice("node_id", node.id)
            made.append(WrappedCommand(str(len(made)), (PYTHON, "-c", source), share, choice))
    return made


class ProbeRun:
    """Runs probes until all have told what they see; a listener of that run.

    `views` are what they told, `failed` those that ended before. `say_who_waits` hears of those
    that do not run yet.
    """

    def __init__(
        self,
        commands: Sequence[WrappedCommand],
        nodes: Sequence[Node],
        say_who_waits: Callable[[Sequence[CommandRun]], None],
    ) -> None:
        self._say_who_waits = say_who_waits
        self._nodes = {node.id: node for node in nodes}
        self._said: dict[int, bytes] = defaultdict(bytes)
        self.views: list[View] = []
        self.failed: list[CommandRun] = []
        self._run = WrappedRun(commands, nodes, self, folder=os.sep, is_concurrent=True)

    def follow(self) -> None:
        """Run the probes at the same time and take in what they see."""
        self._run.follow()
        self.views.sort(key=lambda view: view.number)

    def begins(self, run: CommandRun) -> None:
        """Wait for what it says."""

    def prints(self, run: CommandRun, data: bytes) -> None:
        """Take in what it sees; the last one ends them all."""
        self._said[run.number] += data
        if not self._said[run.number].endswith(b"\n"):
            return
        node = self._nodes[run.command.node.value]
        try:
            seen = json.loads(self._said[run.number])
        except ValueError:
            return  # it says why it cannot look, and will fail
        self.views.append(View(run.number, node, run.command.resources, seen))
        if len(self.views) == len(self._run.runs):
            self._run.end_all()

    def ends(self, run: CommandRun) -> None:
        """Note those that ended unasked; without them the others would be waited for in vain."""
        if run.state == "failed":
            self.failed.append(run)
            self._run.end_all()

    def waits(self, waiting: Sequence[CommandRun]) -> None:
        """Pass that on."""
        self._say_who_waits(waiting)


def find_faults(views: Sequence[View]) -> list[str]:
    """Return a sentence for all that is not as it should be among workers that ran at once."""
    return [*_own_faults(views), *_shared_cores(views), *_shared_gpus(views)]


def _own_faults(views: Sequence[View]) -> Iterator[str]:
    for view in views:
        given = view.resources
        if len(view.cores) < given.cpu - _A_LITTLE:
            why = _told_too_much(view.machine, views)
            yield f"[{view.number}] has {given.cpu:g} CPU and {len(view.cores)} cores{why}"
        if given.cpu and len(view.cores) > math.ceil(given.cpu - _A_LITTLE):
            yield f"[{view.number}] has {given.cpu:g} CPU and may use {len(view.cores)} cores"
        if len(view.gpus) != math.ceil(given.gpu):
            yield f"[{view.number}] has {given.gpu:g} GPU and sees {len(view.gpus)}"
        if given.memory and view.seen["memory"] != given.memory:
            yield f"[{view.number}] may use more memory than it was given"
        if view.seen["threads"] != str(given.threads):
            yield f"[{view.number}] has {given.cpu:g} CPU and is told of {view.seen['threads']}"


def _shared_cores(views: Sequence[View]) -> Iterator[str]:
    users = defaultdict(list)
    for view in views:
        for core in view.cores if view.resources.cpu else ():  # without CPUs it has none to itself
            users[view.machine, core].append(view)
    crowded = defaultdict(list)
    for (machine, core), there in users.items():
        if len(there) > 1 and sum(map(_part_of_a_core, there)) > 1 + _A_LITTLE:
            crowded[machine].append(core)
    for machine, shared in _shared_twice(users):
        crowded[machine] += [core for core in shared if core not in crowded[machine]]
    for machine, cores in crowded.items():
        listed = ", ".join(str(core) for core in sorted(cores))
        noun = "core" if len(cores) == 1 else "cores"
        hosts = ", ".join(dict.fromkeys(view.host for view in views if view.machine == machine))
        yield f"{hosts}: workers share {noun} {listed}{_told_too_much(machine, views)}"


def _shared_twice(
    users: Mapping[tuple[str, int], Sequence[View]],
) -> Iterator[tuple[str, list[int]]]:
    """Return the cores of workers that share more than one: only a fraction may be shared."""
    shared: dict[tuple[str, int], list[int]] = defaultdict(list)
    for (machine, core), there in users.items():
        for view in there if len(there) > 1 else ():
            shared[machine, view.number].append(core)
    for (machine, _), cores in shared.items():
        if len(cores) > 1:
            yield machine, cores


def _part_of_a_core(view: View) -> float:
    """Return how much a worker counts for on a core that it does not have alone."""
    return view.resources.cpu % 1 or 1.0


def _told_too_much(machine: str, views: Sequence[View]) -> str:
    """Say so where Ray was told of more CPUs than there are, which nobody can keep apart."""
    there = [view for view in views if view.machine == machine]
    told = sum({view.node.id: view.node.resources["CPU"] for view in there}.values())
    existing = max(int(view.seen["machine_cores"]) for view in there)
    if told <= existing:
        return ""
    return f", for Ray was told of {told:g} CPUs there, and there are {existing}"


def _shared_gpus(views: Sequence[View]) -> Iterator[str]:
    given: dict[tuple[str, str], float] = defaultdict(float)
    for view in views:
        for gpu in view.gpus:
            given[view.host, gpu] += view.resources.gpu / len(view.gpus)
    for (host, gpu), share in given.items():
        if share > 1 + _A_LITTLE:
            yield f"{host}: workers share GPU {gpu} beyond their fractions: {share:g} of it"
