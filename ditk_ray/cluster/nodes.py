"""The nodes that trials may run on, and how many trials fit on them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ditk_ray.config.quantities import show_bytes
from ditk_ray.config.resources import TrialResources
from ditk_ray.errors import DoesNotFitError

_GROUP_LABEL = "ray.io/node-group"


@dataclass(frozen=True)
class Node:
    """One machine and what it has, by Ray's names; or several alike that may still come."""

    name: str
    resources: Mapping[str, float]
    id: str = ""
    """Ray's own name for it; nodes that may come have none."""
    address: str = ""
    group: str = ""
    """The worker group that it belongs to, if it says so."""
    to_come: int = 0
    """How many such nodes the cluster may still start, if it is none that is there."""

    def holds(self, trial: TrialResources) -> int:
        """Return how many such trials run here at once."""
        wanted = trial.for_ray()
        if not wanted:
            return 0
        each = int(min(self.resources.get(name, 0.0) / need for name, need in wanted.items()))
        return each * (self.to_come or 1)

    def __str__(self) -> str:
        if self.to_come:
            more = f"up to {self.to_come} more" if self.to_come > 1 else "one more"
            return f"{self.name} ({more} may come): {self._amounts()}"
        return f"{self.name}: {self._amounts()}"

    def _amounts(self) -> str:
        shown = [f"{self.resources.get('CPU', 0):g} CPU"]
        if self.resources.get("GPU"):
            shown.append(f"{self.resources['GPU']:g} GPU")
        if self.resources.get("memory"):
            shown.append(f"{show_bytes(self.resources['memory'])} memory")
        known = {"CPU", "GPU", "memory", "object_store_memory"}
        custom = [
            f"{amount:g} {name}"
            for name, amount in self.resources.items()
            if name not in known and not name.startswith(("node:", "accelerator_type:"))
        ]
        return ", ".join(shown + custom)


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
    import ray

    return [
        Node(
            node["NodeManagerHostname"],
            node["Resources"],
            node["NodeID"],
            node["NodeManagerAddress"],
            node["Labels"].get(_GROUP_LABEL, ""),
        )
        for node in ray.nodes()
        if node["Alive"]
    ]


def share_nodes(
    trial: TrialResources, nodes: Sequence[Node], workers_per_node: int
) -> TrialResources:
    """Return a trial's share if each node is divided evenly among so many trials."""
    cpu = _smallest("CPU", nodes) / workers_per_node
    gpu = _smallest("GPU", nodes) / workers_per_node
    return replace(
        trial,
        cpu=float(int(cpu)) if cpu >= 1 else cpu,
        gpu=float(int(gpu)) if gpu >= 1 else gpu,
    )


def _smallest(name: str, nodes: Sequence[Node]) -> float:
    """Return the least that a node has of something, of those that have it at all."""
    return min((node.resources[name] for node in nodes if node.resources.get(name)), default=0.0)


def count_slots(trial: TrialResources, nodes: Sequence[Node]) -> int:
    """Return how many trials run at once; raises `DoesNotFitError` if none ever can."""
    slots = sum(node.holds(trial) for node in nodes)
    if slots == 0:
        found = "\n".join(f"    {node}" for node in nodes) or "    no node at all"
        raise DoesNotFitError(
            f"a trial needs {trial}, and no node has that much:\n{found}\n"
            "ask for less in the JobCfg's `resources`, or use a larger node"
        )
    return slots


def _gpus() -> int:
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return len([item for item in visible.split(",") if item.strip()])
    driver = Path("/proc/driver/nvidia/gpus")
    return len(list(driver.iterdir())) if driver.is_dir() else 0
