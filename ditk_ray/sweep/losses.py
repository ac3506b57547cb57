"""What becomes of a trial whose actor or node was lost, or that needs more memory.

Failures of the training itself are dealt with where it runs. What reaches Tune is a loss:
Tune starts the trial again, from its last checkpoint, as often as it is let.
"""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import replace

from ray.tune import PlacementGroupFactory
from ray.tune.experiment import Trial

from ditk_ray.config.resources import TrialResources
from ditk_ray.errors import NeedsMemoryError
from ditk_ray.tracking.observer import pickled_error

_HOUR = 3600.0


class Losses:
    """Decides on each loss whether the next one is the last, and gives memory where allowed."""

    def __init__(self, per_hour: int, resources: TrialResources) -> None:
        self._per_hour = per_hour
        self._resources = resources
        self._times: dict[str, list[float]] = defaultdict(list)

    def note(self, trial: Trial) -> None:
        """Take note of a failure that reached Tune, before the trial is started again."""
        error = pickled_error(trial)
        if isinstance(error, NeedsMemoryError):
            larger = replace(self._resources, memory=error.memory).for_ray()
            trial.update_resources(PlacementGroupFactory([larger]))
            return
        now = time.monotonic()
        recent = [then for then in self._times[trial.trial_id] if now - then < _HOUR]
        self._times[trial.trial_id] = [*recent, now]
        if len(recent) + 1 >= self._per_hour:
            trial.max_failures = trial.num_failures  # the next one is its last
