"""Time and resources that a sweep used."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ditk_ray.report.data import SweepData, TrialData
from ditk_ray.report.values import is_number
from ditk_ray.tracking.record import TrialState

UNKNOWN_NODE = "unknown node"
_EARLY = (TrialState.STOPPED, TrialState.PRUNED)


@dataclass(frozen=True)
class NodeUsage:
    """What one node did."""

    node: str
    trials: int
    seconds: float


@dataclass(frozen=True)
class Usage:
    """Sums over the trials. What the record does not tell is None."""

    wall_seconds: float | None
    trial_seconds: float
    cpu_hours: float | None
    gpu_hours: float | None
    steps: float
    early: int
    steps_saved: float | None
    nodes: Sequence[NodeUsage]

    @property
    def at_once(self) -> float | None:
        """How many trials ran at the same time, in the mean."""
        return self.trial_seconds / self.wall_seconds if self.wall_seconds else None

    @property
    def is_spread(self) -> bool:
        """Whether more than one node is known to have had trials."""
        return sum(usage.node != UNKNOWN_NODE for usage in self.nodes) > 1


def measure(sweep: SweepData) -> Usage:
    """Add up what the trials used."""
    seconds = sum(trial.seconds for trial in sweep.trials)
    resources = sweep.job.get("resources") or {}
    seeds = len(sweep.job.get("seeds") or [0])
    return Usage(
        wall_seconds=sweep.seconds,
        trial_seconds=seconds,
        cpu_hours=resources["cpu"] * seconds / 3600 if resources.get("cpu") else None,
        gpu_hours=resources["gpu"] * seconds / 3600 if resources.get("gpu") else None,
        steps=seeds * sum(trial.last_step or 0 for trial in sweep.trials),
        early=len(_ended_early(sweep)),
        steps_saved=_steps_saved(sweep, seeds),
        nodes=_by_node(sweep),
    )


def _ended_early(sweep: SweepData) -> list[TrialData]:
    return [trial for trial in sweep.trials if trial.record.state in _EARLY]


def _steps_saved(sweep: SweepData, seeds: int) -> float | None:
    """Return the steps that early ends left out, where each trial had a known limit."""
    limit, early = sweep.job.get("max_env_step"), _ended_early(sweep)
    if not is_number(limit) or not early:
        return None
    return seeds * sum(max(0.0, limit - (trial.last_step or 0)) for trial in early)


def _by_node(sweep: SweepData) -> list[NodeUsage]:
    trials: dict[str, list[TrialData]] = {}
    for trial in sweep.trials:
        if trial.record.state is not TrialState.PENDING:
            trials.setdefault(trial.record.node or UNKNOWN_NODE, []).append(trial)
    return [
        NodeUsage(node, len(ran), sum(trial.seconds for trial in ran))
        for node, ran in sorted(trials.items())
    ]
