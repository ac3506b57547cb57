"""What the sweep has to know of Ray Tune's schedulers."""

from __future__ import annotations

from typing import Any

from ray.tune.schedulers import (
    HyperBandScheduler,
    PopulationBasedTraining,
    ResourceChangingScheduler,
)

_PAUSING = (HyperBandScheduler, PopulationBasedTraining, ResourceChangingScheduler)


def needs_checkpoints(scheduler: Any) -> bool:
    """Say whether a scheduler pauses trials: without a checkpoint they would start anew."""
    return isinstance(scheduler, _PAUSING)


def checkpoints_kept(scheduler: Any) -> int:
    """Return how many checkpoints a trial keeps.

    One is enough to go on, and the one before in case the last is cut short. Where
    trials go on from each other's, one may be fetched long after it was written.
    """
    return 20 if isinstance(scheduler, PopulationBasedTraining) else 2
