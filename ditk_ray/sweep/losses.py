"""What becomes of a trial whose actor or node was lost, or that needs more memory.

Failures of the training itself are dealt with where it runs. What reaches Tune is a loss:
Tune starts the trial again, from its last checkpoint, as often as it is let.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import replace

from ray.tune import PlacementGroupFactory
from ray.tune.experiment import Trial

from ditk_ray.config.resources import TrialResources
from ditk_ray.errors import NeedsMemoryError
from ditk_ray.tracking.observer import pickled_error

_HOUR = 3600.0
_NO_LIMIT = -1


class Losses:
    """Decides whether a trial's next loss is its last, and gives memory where allowed.

    Tune decides on a failure before it tells of it, so what it may do is said beforehand:
    when a trial is added (`admit`), after each failure (`note`), and as time goes by
    (`look`). A trial whose need for more memory comes through the same door is not held to
    zero losses before it has got that.
    """

    def __init__(
        self,
        per_hour: int,
        resources: TrialResources,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._per_hour = per_hour
        self._resources = resources
        self._clock = clock
        self._times: dict[str, list[float]] = defaultdict(list)
        self._has_grown: set[str] = set()

    def admit(self, trial: Trial) -> None:
        """Take note of a trial before it starts."""
        self._limit(trial)

    def note(self, trial: Trial) -> None:
        """Take note of a failure that reached Tune, before the trial is started again."""
        error = pickled_error(trial)
        if isinstance(error, NeedsMemoryError):
            self.grow(trial, error.memory)
        else:
            self._times[trial.trial_id].append(self._clock())
        self._limit(trial)

    def look(self, trials: Iterable[Trial]) -> None:
        """Forget losses that were long ago."""
        for trial in trials:
            if trial.trial_id in self._times:
                self._limit(trial)

    def grow(self, trial: Trial, memory: int) -> None:
        """Have a trial that does not run started with so much memory."""
        larger = replace(self._resources, memory=memory).for_ray()
        trial.update_resources(PlacementGroupFactory([larger]))
        self._has_grown.add(trial.trial_id)

    def _limit(self, trial: Trial) -> None:
        now = self._clock()
        recent = [then for then in self._times.get(trial.trial_id, ()) if now - then < _HOUR]
        if recent:
            self._times[trial.trial_id] = recent
        else:
            self._times.pop(trial.trial_id, None)
        may_grow = self._resources.max_memory and trial.trial_id not in self._has_grown
        is_at_limit = len(recent) >= max(self._per_hour, 1 if may_grow else 0)
        trial.max_failures = trial.num_failures if is_at_limit else _NO_LIMIT
