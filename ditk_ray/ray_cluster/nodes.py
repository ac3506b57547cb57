"""The nodes there are and those that may still come, what fits on them, and who has which cores."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
import uuid
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator, ConfigDict, Field, NonNegativeFloat, NonNegativeInt

from ditk_ray.config.checked import Written, check
from ditk_ray.config.resources import TrialResources
from ditk_ray.errors import BadConfigError, DoesNotFitError, Problem
from ditk_ray.execution.fork_client import runtime_folder
from ditk_ray.util.locks import locked
from ditk_ray.util.units import parse_bytes

WORKER_GROUPS = "DITK_RAY_WORKER_GROUPS"
"""The environment variable, set on the head by the cluster's creator: a JSON list of groups."""
_HINT = """it has to be like [{"name": "gpu", "min": 0, "max": 8, "cpu": 8, "gpu": 1}]"""
RAYS_OWN = ("CPU", "GPU", "memory", "object_store_memory")
"""The resources that every node has."""

_ALMOST_NOTHING = 1e-6

Amount = Annotated[NonNegativeFloat, Field(allow_inf_nan=False, strict=True)]


@dataclass(frozen=True)
class Node:
    """One machine and what it has, by Ray's names; or `to_come` alike that may still come.

    `id` is Ray's own name for it, which those that may come do not have; `group` is the worker
    group that it belongs to, if it says so.
    """

    name: str
    resources: Mapping[str, float]
    id: str = ""
    address: str = ""
    group: str = ""
    to_come: int = 0

    def holds(self, trial: TrialResources) -> int:
        """Return how many such trials run here at once."""
        wanted = trial.for_ray()
        if not wanted:
            return 0
        each = int(min(self.resources.get(name, 0.0) / need for name, need in wanted.items()))
        return each * (self.to_come or 1)

    def __str__(self) -> str:
        custom = {
            name: amount
            for name, amount in self.resources.items()
            if name not in RAYS_OWN and not name.startswith(("node:", "accelerator_type:"))
        }
        more = f" (up to {self.to_come} more may come)" if self.to_come else ""
        return f"{self.name}{more}: {TrialResources(custom=custom).as_given(self.resources)}"


def this_machine() -> Node:
    """Return what a Ray that is started here would have; starts nothing."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    amounts = {"CPU": float(usable_cpus()), "GPU": float(_gpus()), "memory": float(memory)}
    return Node("this machine", amounts)


def usable_cpus() -> int:
    """Return the number of CPUs that this process may use: its affinity and its container's."""
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with contextlib.suppress(OSError, ValueError):  # no cgroup, or one without a quota
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        cpus = min(cpus, max(1, int(quota) // int(period)))
    return cpus


def cluster_nodes() -> list[Node]:
    """Return the living nodes of the Ray cluster that the process is connected to."""
    import ray  # slow to import

    return [
        Node(
            node["NodeManagerHostname"],
            node["Resources"],
            node["NodeID"],
            node["NodeManagerAddress"],
            node["Labels"].get("ray.io/node-group", ""),
        )
        for node in ray.nodes()
        if node["Alive"]
    ]


def share_nodes(
    trial: TrialResources, nodes: Sequence[Node], workers_per_node: int
) -> TrialResources:
    """Return a trial's share if each node is divided evenly among this many trials."""

    def share(name: str) -> float:
        having = [node.resources[name] for node in nodes if node.resources.get(name)]
        share = min(having, default=0.0) / workers_per_node
        return float(int(share)) if share >= 1 else share

    return replace(trial, cpu=share("CPU"), gpu=share("GPU"))


def count_slots(trial: TrialResources, nodes: Sequence[Node]) -> int:
    """Return how many trials run at once; raises `DoesNotFitError` if none ever can."""
    slots = sum(node.holds(trial) for node in nodes)
    if slots == 0:
        raise DoesNotFitError(
            f"a trial needs {trial}, and no node has that much:\n{show_nodes(nodes)}\n"
            "ask for less in the JobCfg's `resources`, or use a larger node"
        )
    return slots


def show_nodes(nodes: Sequence[Node]) -> str:
    return "\n".join(f"    {node}" for node in nodes) or "    none at all"


def _gpus() -> int:
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return len([item for item in visible.split(",") if item.strip()])
    driver = Path("/proc/driver/nvidia/gpus")
    return len(list(driver.iterdir())) if driver.is_dir() else 0


class WorkerGroup(Written):
    """Nodes of one kind, between `min` and `max` of them; `memory` is in bytes."""

    model_config = ConfigDict(strict=True)

    name: str
    max: NonNegativeInt
    min: NonNegativeInt = 0
    cpu: Amount = 0.0
    gpu: Amount = 0.0
    memory: Annotated[int, BeforeValidator(lambda given: parse_bytes(given or 0))] = 0

    def resources(self) -> dict[str, float]:
        """Return what one of its nodes has, by Ray's names."""
        return TrialResources(self.cpu, self.gpu, self.memory).for_ray()

    def has(self, node: Node) -> bool:
        """Say whether a node is of this group: by its label, else by its CPUs and GPUs."""
        if node.group:
            return node.group == self.name
        amounts = (node.resources.get("CPU", 0.0), node.resources.get("GPU", 0.0))
        return amounts == (self.cpu, self.gpu)


def worker_groups(environment: Mapping[str, str] = os.environ) -> tuple[WorkerGroup, ...]:
    """Return the groups that the environment declares; `BadConfigError` has all mistakes."""
    try:
        given = json.loads(environment.get(WORKER_GROUPS, "").strip() or "[]")
    except ValueError as error:
        raise BadConfigError(Problem(WORKER_GROUPS, f"is not JSON: {error}", _HINT)) from None
    fields = WorkerGroup.model_fields
    return tuple(check(list[WorkerGroup], given, WORKER_GROUPS, fields, _HINT))


def nodes_to_come(groups: Sequence[WorkerGroup], present: Sequence[Node]) -> list[Node]:
    """Return an entry for each group that may still grow, given the nodes that are there.

    Ray's autoscaler starts nodes for work that waits, so a sweep that only counts the nodes
    that are there would never make it start one.
    """
    found = []
    for group in groups:
        more = group.max - sum(group.has(node) for node in present)
        if more > 0:
            found.append(Node(group.name, group.resources(), group=group.name, to_come=more))
    return found


@dataclass(frozen=True)
class CoreLease:
    """The cores of one command; `descriptor` is the open file that holds the lock.

    A lease is a file in a folder of the user's, with the cores in it and a lock on it. Whoever
    guards the command holds that lock to its end, however that comes: a lease whose lock is
    free is over. So nothing has to be given back, and a killed worker keeps no core.
    """

    cores: tuple[int, ...]
    path: Path
    descriptor: int

    def close(self) -> None:
        """Let go of the lock, and remove the file of a command that is over."""
        self.path.unlink(missing_ok=True)
        os.close(self.descriptor)


def lease_cores(cpu: float, cores: Sequence[int] = (), folder: Path | None = None) -> CoreLease:
    """Take a number of this machine's cores: idle ones first, then the least loaded.

    `cores` are those to choose from, by default all that this process may use. Fractions share
    a core. More than there are cannot be had: then the lease has all of them; of none it has
    none, and the command may run on all.
    """
    place = folder or runtime_folder() / "cores"
    place.mkdir(mode=0o700, exist_ok=True)
    with locked(place / "lock"):
        taken = _taken(place)
        shares = choose_cores(cpu, {core: taken[core] for core in cores or usable_cores()})
        path = place / f"{uuid.uuid4().hex}.lease"
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        os.write(descriptor, json.dumps(shares).encode())
    return CoreLease(tuple(sorted(shares)), path, descriptor)


def choose_cores(cpu: float, load: Mapping[int, float]) -> dict[int, float]:
    """Return how much of which cores to take for an amount of CPU, given what is taken of each."""
    whole, part = int(cpu + _ALMOST_NOTHING), cpu % 1
    chosen = dict.fromkeys(sorted(load, key=lambda core: load[core])[:whole], 1.0)
    rest = [core for core in load if core not in chosen]
    if _ALMOST_NOTHING < part < 1 - _ALMOST_NOTHING and rest:
        # A core that has room for it and little else, so that whole ones stay whole.
        roomy = [core for core in rest if load[core] + part <= 1 + _ALMOST_NOTHING]
        best = max(roomy, key=load.__getitem__) if roomy else min(rest, key=load.__getitem__)
        chosen[best] = part
    return chosen


def usable_cores() -> tuple[int, ...]:
    """Return the cores that this process may use, in the order in which they are handed out."""
    # Containers of one machine do not know of each other's leases: each begins elsewhere.
    cores = sorted(os.sched_getaffinity(0))
    first = zlib.crc32(socket.gethostname().encode()) % len(cores)
    return (*cores[first:], *cores[:first])


def _taken(folder: Path) -> Counter[int]:
    taken: Counter[int] = Counter()
    for path in folder.glob("*.lease"):
        with contextlib.suppress(FileNotFoundError), path.open() as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                shares = json.loads(file.read())
                taken.update({int(core): share for core, share in shares.items()})
            else:
                path.unlink()
    return taken
