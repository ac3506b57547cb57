"""TPE that never closes in on a place for good."""

from __future__ import annotations

from typing import Any

from optuna.distributions import BaseDistribution
from optuna.samplers import TPESampler
from optuna.study import Study
from optuna.trial import FrozenTrial

RANDOM_EVERY = 3


class OpenTPESampler(TPESampler):
    """Optuna's TPE with every third trial drawn at random, as BOHB has it.

    While no trial has learned anything, scores differ by chance alone. TPE takes the luckiest
    for good, looks for more of them, and finds them, as they are everywhere; then it does not
    leave that place.
    """

    def infer_relative_search_space(
        self, study: Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        """Return nothing for a trial that is drawn at random."""
        return {} if _is_random(trial) else super().infer_relative_search_space(study, trial)

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: Any
    ) -> Any:
        """Draw a parameter, for a trial whose turn it is at random."""
        if _is_random(trial):
            sampler = self._random_sampler
            return sampler.sample_independent(study, trial, param_name, param_distribution)
        return super().sample_independent(study, trial, param_name, param_distribution)


def _is_random(trial: FrozenTrial) -> bool:
    return bool(trial.number % RANDOM_EVERY == RANDOM_EVERY - 1)
