"""Searchers of other packages: Ax, BOHB, hyperopt and nevergrad, through Ray Tune's classes.

Tune's modules import their packages, some of which take seconds to load, so each is imported,
and its class derived, only when that searcher is chosen.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from ray.tune.search import Searcher

from ditk_ray.errors import BadConfigError, Problem
from ditk_ray.search.searchers import SEARCHER_OPTIONS, SearcherRequest, settings_of
from ditk_ray.util.suggest import did_you_mean

_AX_STARTUP = "num_initialization_trials"
_PLAIN_TYPES = ("bool", "int", "float", "str")


def build(name: str, request: SearcherRequest) -> Searcher:
    return _BUILDERS[name](request)


def settings(name: str) -> dict[str, str]:
    if name == "nevergrad":  # one of its optimizers, and for how many trials it plans
        return {"optimizer": "str", "budget": "int"}
    if name == "hyperopt":
        from ray.tune.search.hyperopt import HyperOptSearch  # an extra

        ours = ("space", "metric", "mode", "points_to_evaluate", "random_state_seed")
        return settings_of(HyperOptSearch.__init__, without=ours)
    if name == "bohb":
        from hpbandster.optimizers.config_generators.bohb import BOHB  # an extra

        return settings_of(BOHB.__init__, without=("configspace",))
    from ax.service.ax_client import AxClient  # an extra

    known = settings_of(AxClient.__init__, without=("random_seed", "verbose_logging"))
    plain = {name: kind for name, kind in known.items() if kind.split(" ")[0] in _PLAIN_TYPES}
    return {_AX_STARTUP: "int", **plain}


def _build_ax(request: SearcherRequest) -> Searcher:
    from ax.service.ax_client import AxClient, ObjectiveProperties  # an extra
    from ax.utils.common.logger import set_ax_logger_levels
    from ray.tune.search.ax import AxSearch

    set_ax_logger_levels(logging.ERROR)
    settings = {_AX_STARTUP: request.startup_trials, **request.options}
    # Ax would have 3 trials at once at most; how many there are is for the sweep to say.
    strategy = {_AX_STARTUP: settings.pop(_AX_STARTUP), "max_parallelism_override": -1}
    metric, mode = request.objectives[0]
    client = AxClient(random_seed=request.seed, verbose_logging=False, **settings)
    client.create_experiment(
        parameters=AxSearch.convert_search_space(dict(request.domains)),
        objectives={metric: ObjectiveProperties(minimize=mode == "min")},
        choose_generation_strategy_kwargs=strategy,
    )

    class PreparedAx(AxSearch):
        # Tune's own way to make the experiment reads attributes of an objective that Ax has not
        # had since its release 1.3, and cannot say how many trials come before the model.
        def _setup_experiment(self) -> None:
            self._parameters = list(client.experiment.parameters)

        def on_trial_complete(
            self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
        ) -> None:
            if not result:  # else Ax would wait for it
                self._ax.log_trial_failure(self._live_trial_mapping[trial_id])
            super().on_trial_complete(trial_id, result, error)

    return PreparedAx(ax_client=client, **request.arguments)


def _build_bohb(request: SearcherRequest) -> Searcher:
    from ray.tune.search.bohb import TuneBOHB  # an extra

    class SeededBohb(TuneBOHB):
        # The package draws from numpy's global state, which others draw from, too.
        _draws = np.random.RandomState(request.seed).get_state()

        def suggest(self, trial_id: str) -> dict[str, Any] | None:
            others = np.random.get_state()
            np.random.set_state(self._draws)
            try:
                suggested: dict[str, Any] | None = super().suggest(trial_id)
            finally:
                self._draws = np.random.get_state()
                np.random.set_state(others)
            return suggested

    return SeededBohb(seed=request.seed, bohb_config=dict(request.options), **request.arguments)


def _build_hyperopt(request: SearcherRequest) -> Searcher:
    from ray.tune.search.hyperopt import HyperOptSearch  # an extra

    settings = {"n_initial_points": request.startup_trials, **request.options}
    return HyperOptSearch(random_state_seed=request.seed, **settings, **request.arguments)


def _build_nevergrad(request: SearcherRequest) -> Searcher:
    from ray.tune.search.nevergrad import NevergradSearch  # an extra

    class SeededNevergrad(NevergradSearch):
        def _setup_nevergrad(self) -> None:
            if request.seed is not None:
                self._space.random_state = np.random.RandomState(request.seed)
            super()._setup_nevergrad()

    # With one worker, the default would take methods that wait for the answer inside the
    # question: for ever, if a trial has failed.
    settings = {"budget": request.num_samples or 100, "num_workers": 8, **request.options}
    optimizer = _nevergrad_optimizer(settings.pop("optimizer", "NGOpt"))
    return SeededNevergrad(optimizer=optimizer, optimizer_kwargs=settings, **request.arguments)


def _nevergrad_optimizer(name: str) -> Any:
    import nevergrad  # an extra

    everything = nevergrad.optimizers.registry
    known = [key for key in everything if not everything[key].no_parallelization]
    if name not in known:
        what = f"nevergrad has no optimizer {name!r} that can have several trials at once"
        where = f"{SEARCHER_OPTIONS}.optimizer"
        raise BadConfigError(Problem(where, what, did_you_mean(name, known)))
    return everything[name]


_BUILDERS: Mapping[str, Callable[[SearcherRequest], Searcher]] = {
    "ax": _build_ax,
    "bohb": _build_bohb,
    "hyperopt": _build_hyperopt,
    "nevergrad": _build_nevergrad,
}
