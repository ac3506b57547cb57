"""The searcher of the package Ax."""

from __future__ import annotations

import logging
import warnings
from typing import Any

from ray.tune.search import Searcher
from ray.tune.search.ax import AxSearch

from ditk_ray.search.options import settings_of
from ditk_ray.search.searcher_request import SearcherRequest

_OURS = ("random_seed", "verbose_logging")
_PLAIN = ("bool", "int", "float", "str")
_STARTUP = "num_initialization_trials"


class _AxSearch(AxSearch):
    """Tune's, on a client whose experiment is made already.

    Tune's own way to make it reads attributes of an objective that Ax has not had since its
    release 1.3, and leaves no way to say how many trials come before the model.
    """

    def __init__(self, client: Any, request: SearcherRequest) -> None:
        self._experiment = client.experiment
        points = request.handed_points()
        super().__init__(
            metric=request.metric, mode=request.mode, points_to_evaluate=points, ax_client=client
        )

    def _setup_experiment(self) -> None:
        self._parameters = list(self._experiment.parameters)

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        if not result:  # else Ax would wait for it
            self._ax.log_trial_failure(self._live_trial_mapping[trial_id])
        super().on_trial_complete(trial_id, result, error)


def build_ax(request: SearcherRequest) -> Searcher:
    """Return Ax's Bayesian optimisation."""
    from ax.service.ax_client import AxClient, ObjectiveProperties
    from ax.utils.common.logger import set_ax_logger_levels

    set_ax_logger_levels(logging.ERROR)
    settings = {_STARTUP: request.startup_trials, **request.options}
    # Ax would have 3 trials at once at most; how many there are is for the sweep to say.
    strategy = {_STARTUP: settings.pop(_STARTUP), "max_parallelism_override": -1}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of how it takes choices, which Tune does not say
        client = AxClient(random_seed=request.seed, verbose_logging=False, **settings)
        client.create_experiment(
            parameters=AxSearch.convert_search_space(dict(request.domains)),
            objectives={request.metric: ObjectiveProperties(minimize=request.mode == "min")},
            choose_generation_strategy_kwargs=strategy,
        )
    return _AxSearch(client, request)


def ax_settings() -> dict[str, str]:
    """Return what its client takes in plain values, and how many trials precede the model."""
    from ax.service.ax_client import AxClient

    known = settings_of(AxClient.__init__, without=_OURS)
    plain = {name: kind for name, kind in known.items() if kind.split(" ")[0] in _PLAIN}
    return {_STARTUP: "int", **plain}
