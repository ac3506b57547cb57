"""Searchers by Optuna's samplers, through Ray Tune's `OptunaSearch`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from optuna import logging
from optuna.distributions import BaseDistribution
from optuna.samplers import CmaEsSampler, GPSampler, NSGAIISampler, TPESampler
from optuna.study import Study
from optuna.trial import FrozenTrial, create_trial
from ray.tune.search import Searcher
from ray.tune.search.optuna import OptunaSearch

from ditk_ray.search.searchers import SearcherRequest, settings_of

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
        return {} if _is_random(trial) else super().infer_relative_search_space(study, trial)

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: Any
    ) -> Any:
        if _is_random(trial):
            sampler = self._random_sampler
            return sampler.sample_independent(study, trial, param_name, param_distribution)
        return super().sample_independent(study, trial, param_name, param_distribution)


def _is_random(trial: FrozenTrial) -> bool:
    return bool(trial.number % RANDOM_EVERY == RANDOM_EVERY - 1)


class _OptunaSearch(OptunaSearch):
    """Tune's, which also accepts earlier evaluations with several objectives."""

    def add_evaluated_point(
        self, parameters: dict[str, Any], value: Any, *args: Any, **kwargs: Any
    ) -> None:
        if not isinstance(value, list):
            super().add_evaluated_point(parameters, value, *args, **kwargs)
            return
        trial = create_trial(values=value, params=parameters, distributions=self._space)
        self._ot_study.add_trial(trial)


_SAMPLERS: Mapping[str, type] = {
    "tpe": OpenTPESampler,
    "cmaes": CmaEsSampler,
    "gp": GPSampler,
    "nsga2": NSGAIISampler,
}


def build(name: str, request: SearcherRequest) -> Searcher:
    logging.set_verbosity(logging.WARNING)
    arguments = request.arguments
    if len(request.objectives) > 1:
        arguments["metric"], arguments["mode"] = map(list, zip(*request.objectives, strict=True))
    options = {**_defaults(name, request), **request.options}
    return _OptunaSearch(sampler=_SAMPLERS[name](**options, seed=request.seed), **arguments)


def _defaults(name: str, request: SearcherRequest) -> dict[str, Any]:
    startup = {"n_startup_trials": request.startup_trials}
    if name == "tpe":  # it sees parameters together, and trials that still run are not repeated
        return {**startup, "multivariate": True, "constant_liar": True}
    if name == "gp":  # scores of RL are noisy
        return {**startup, "deterministic_objective": False, "warn_independent_sampling": False}
    if name == "cmaes":  # choices, which it cannot move in, are drawn by TPE
        others = TPESampler(seed=request.seed, **startup)
        return {"independent_sampler": others, "warn_independent_sampling": False}
    if request.num_samples is None:
        return {}
    return {"population_size": min(50, max(4, request.num_samples // 5))}  # five generations


def settings(name: str) -> dict[str, str]:
    """Return what a sampler takes besides the seed, and functions, which have no text."""
    known = settings_of(_SAMPLERS[name], without=["seed"])
    code = ("Callable", "Base", "FrozenTrial", "dict[")
    return {key: kind for key, kind in known.items() if not any(word in kind for word in code)}
