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
