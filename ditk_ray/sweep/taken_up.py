"""Taking up the trials that an earlier process left open."""

from __future__ import annotations

from pathlib import Path

from ray.tune.experiment import Trial
from ray.tune.schedulers import TrialScheduler

from ditk_ray.config.failure_kinds import FailureKind
from ditk_ray.config.resources import TrialResources
from ditk_ray.sweep.earlier import EarlierSweep
from ditk_ray.sweep.losses import Losses
from ditk_ray.sweep.places import Places
from ditk_ray.sweep.scheduler_history import recall_open
from ditk_ray.trial.failure_log import read_failures


class TakenUp:
    """Brings each such trial to where it was when Tune has just been given it.

    The scheduler knows what it has evaluated, it has the memory that it was given after it
    had run out of it, and one that a person has paused is paused still.
    """

    def __init__(
        self,
        earlier: EarlierSweep | None,
        scheduler: TrialScheduler,
        places: Places,
        losses: Losses,
        resources: TrialResources,
    ) -> None:
        self._earlier = earlier
        self._open = {one.name for one in earlier.unfinished} if earlier else set()
        self._scheduler = scheduler
        self._places = places
        self._losses = losses
        self._max_memory = resources.max_memory

    def take(self, trial: Trial) -> None:
        """Take up a trial, once: one that is retried is given to Tune's scheduler again."""
        name = str(trial)
        if self._earlier is None or name not in self._open:
            return
        self._open.remove(name)
        folder = self._earlier.folder / name
        recall_open(self._scheduler, trial, folder)
        if self._max_memory is not None and _ran_out_of_memory(folder):
            self._losses.grow(trial, self._max_memory)
        if self._earlier.record.trials[name].is_held:
            self._places.hold(name)
            self._places.wait(name)
            trial.set_status(Trial.PAUSED)


def _ran_out_of_memory(folder: Path) -> bool:
    return any(one.kind == FailureKind.OUT_OF_MEMORY for one in read_failures(folder))
