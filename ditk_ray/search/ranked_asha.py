"""ASHA that lets trials go on by their rank among all, so that equals and early ones do not."""

from __future__ import annotations

import math
from collections import ChainMap
from typing import Any

from ray.tune.experiment import Trial
from ray.tune.schedulers import AsyncHyperBandScheduler, TrialScheduler
from ray.tune.schedulers.async_hyperband import _Bracket


class RankedASHA(AsyncHyperBandScheduler):
    """Asynchronous successive halving, by ranks.

    At the first rung a trial goes on if it is among the best `1 / reduction_factor` of all
    that came there, itself included; at the second among the best `1 / reduction_factor**2`
    of them, where a trial that was stopped before counts with its last score; and so on.
    Of equals, those that came first go on.

    Ray Tune's own goes by a percentile of those that came to the same rung. In RL that saves
    little: policies that have learned nothing score the same to the last digit and all reach
    the percentile, and the first trials of a sweep meet nobody at the later rungs.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        for bracket in self._brackets:
            bracket.__class__ = _RankedBracket


class _RankedBracket(_Bracket):
    def on_result(self, trial: Trial, cur_iter: int, cur_rew: float) -> str:
        """Judge a trial at the last rung that it has come to, unless that was done."""
        for index, (milestone, recorded) in enumerate(self._rungs):  # the last one first
            if cur_iter < milestone:
                continue
            if trial.trial_id not in recorded:
                is_good = self._is_good(index, trial.trial_id, cur_rew)
                recorded[trial.trial_id] = cur_rew
                return str(TrialScheduler.CONTINUE if is_good else TrialScheduler.STOP)
            break
        return str(TrialScheduler.CONTINUE)

    def _is_good(self, index: int, trial: str, score: float) -> bool:
        known = ChainMap(*(recorded for _, recorded in self._rungs[index:]))
        others = [other for name, other in known.items() if name != trial]
        cuts = len(self._rungs) - index
        places = math.ceil((len(others) + 1) / self.rf**cuts)
        return bool(sum(other >= score for other in others) < places)
