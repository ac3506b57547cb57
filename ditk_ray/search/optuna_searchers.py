"""Searchers by Optuna's samplers, through Ray Tune's `OptunaSearch`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ray.tune.search import Searcher
from ray.tune.search.optuna import OptunaSearch

from ditk_ray.search.options import settings_of
from ditk_ray.search.searcher_request import SearcherRequest

_NSGA_GENERATIONS = 5


class _OptunaSearch(OptunaSearch):
    """Tune's, which can also be told of earlier evaluations with several objectives."""

    def add_evaluated_point(
        self, parameters: dict[str, Any], value: Any, *args: Any, **kwargs: Any
    ) -> None:
        from optuna.trial import create_trial

        if not isinstance(value, list):
            super().add_evaluated_point(parameters, value, *args, **kwargs)
            return
        trial = create_trial(values=value, params=parameters, distributions=self._space)
        self._ot_study.add_trial(trial)


def build_tpe(request: SearcherRequest) -> Searcher:
    """Return a tree-structured Parzen estimator that sees parameters together."""
    from ditk_ray.search.open_tpe import OpenTPESampler

    defaults = {
        "n_startup_trials": request.startup_trials,
        "multivariate": True,
        "constant_liar": True,  # trials that still run are not suggested again
    }
    return _search(request, OpenTPESampler, defaults)


def build_cmaes(request: SearcherRequest) -> Searcher:
    """Return CMA-ES; choices, which it cannot move in, are drawn by TPE."""
    from optuna.samplers import CmaEsSampler, TPESampler

    others = TPESampler(seed=request.seed, n_startup_trials=request.startup_trials)
    defaults = {"independent_sampler": others, "warn_independent_sampling": False}
    return _search(request, CmaEsSampler, defaults)


def build_gp(request: SearcherRequest) -> Searcher:
    """Return Bayesian optimisation with a Gaussian process."""
    from optuna.samplers import GPSampler

    defaults = {
        "n_startup_trials": request.startup_trials,
        "deterministic_objective": False,  # scores of RL are noisy
        "warn_independent_sampling": False,
    }
    return _search(request, GPSampler, defaults)


def build_nsga2(request: SearcherRequest) -> Searcher:
    """Return the genetic algorithm NSGA-II, with generations that fit the sweep."""
    from optuna.samplers import NSGAIISampler

    defaults = {}
    if request.num_samples is not None:
        defaults["population_size"] = min(50, max(4, request.num_samples // _NSGA_GENERATIONS))
    return _search(request, NSGAIISampler, defaults)


def sampler_settings(name: str) -> dict[str, str]:
    """Return what a sampler takes besides the seed, and functions, which have no text."""
    from optuna import samplers

    known = settings_of(getattr(samplers, name).__init__, without=["seed"])
    return {key: kind for key, kind in known.items() if not _needs_code(kind)}


def _needs_code(annotation: str) -> bool:
    return any(word in annotation for word in ("Callable", "Base", "FrozenTrial", "dict["))


def _search(request: SearcherRequest, sampler: type, defaults: Mapping[str, Any]) -> Searcher:
    from optuna import logging

    logging.set_verbosity(logging.WARNING)
    several = len(request.objectives) > 1
    searcher = _OptunaSearch(
        metric=[name for name, _ in request.objectives] if several else request.metric,
        mode=[mode for _, mode in request.objectives] if several else request.mode,
        sampler=sampler(**{**defaults, **request.options}, seed=request.seed),
        points_to_evaluate=request.handed_points(),
    )
    searcher.set_search_properties(None, None, dict(request.domains))
    return searcher
