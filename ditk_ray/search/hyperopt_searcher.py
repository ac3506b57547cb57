"""The searcher of the package hyperopt."""

from __future__ import annotations

from ray.tune.search import Searcher
from ray.tune.search.hyperopt import HyperOptSearch

from ditk_ray.search.options import settings_of
from ditk_ray.search.searcher_request import SearcherRequest

_OURS = ("space", "metric", "mode", "points_to_evaluate", "random_state_seed")


def build_hyperopt(request: SearcherRequest) -> Searcher:
    """Return hyperopt's tree-structured Parzen estimator."""
    searcher = HyperOptSearch(
        metric=request.metric,
        mode=request.mode,
        points_to_evaluate=request.handed_points(),
        random_state_seed=request.seed,
        **{"n_initial_points": request.startup_trials, **request.options},
    )
    searcher.set_search_properties(None, None, dict(request.domains))
    return searcher


def hyperopt_settings() -> dict[str, str]:
    """Return what it takes besides what the sweep sets."""
    return settings_of(HyperOptSearch.__init__, without=_OURS)
