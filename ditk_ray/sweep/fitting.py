"""Whether the nodes can hold a trial: as it begins, and as it may grow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ditk_ray.cluster.nodes import Node, count_slots
from ditk_ray.config.quantities import show_bytes
from ditk_ray.config.resources import TrialResources
from ditk_ray.errors import BadConfigError, Problem


def fitting_slots(trial: TrialResources, nodes: Sequence[Node]) -> int:
    """Return how many trials run at once.

    Raises `DoesNotFitError` if none ever can, and `BadConfigError` if one that ran out of
    memory would wait forever for a node with its `max_memory`.
    """
    slots = count_slots(trial, nodes)
    if trial.max_memory is None:
        return slots
    larger = replace(trial, memory=trial.max_memory)
    if not any(node.holds(larger) for node in nodes):
        what = f"no node can hold a trial with {show_bytes(trial.max_memory)} of memory"
        found = "; ".join(str(node) for node in nodes)
        raise BadConfigError(Problem("resources.max_memory", what, f"the nodes have: {found}"))
    return slots
