"""The optimizers of the package nevergrad."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from ray.tune.search import Searcher
from ray.tune.search.nevergrad import NevergradSearch

from ditk_ray.config.nearest import did_you_mean
from ditk_ray.errors import BadConfigError, Problem
from ditk_ray.search.searcher_request import OPTIONS, SearcherRequest

_DEFAULT = "NGOpt"
_SETTINGS = {"optimizer": "str", "budget": "int"}
_AT_ONCE = 8
"""How many answers an optimizer may have to wait for. With one, the default would take methods
that wait for the answer inside the question: for ever, if a trial has failed."""


class _NevergradSearch(NevergradSearch):
    """Tune's, with a seed."""

    def __init__(self, seed: int | None, **settings: Any) -> None:
        self._seed = seed
        super().__init__(**settings)

    def _setup_nevergrad(self) -> None:
        if self._seed is not None:
            self._space.random_state = np.random.RandomState(self._seed)
        super()._setup_nevergrad()


def build_nevergrad(request: SearcherRequest) -> Searcher:
    """Return one of nevergrad's optimizers; the default chooses one by the sweep's size."""
    settings = {"budget": request.num_samples or 100, "num_workers": _AT_ONCE, **request.options}
    searcher = _NevergradSearch(
        request.seed,
        optimizer=_optimizer(settings.pop("optimizer", _DEFAULT)),
        optimizer_kwargs=settings,
        metric=request.metric,
        mode=request.mode,
        points_to_evaluate=request.handed_points(),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of ranges that are narrow for its mutations
        searcher.set_search_properties(None, None, dict(request.domains))
    return searcher


def nevergrad_settings() -> dict[str, str]:
    """Return what it takes: the optimizer by name, and for how many trials it plans."""
    return dict(_SETTINGS)


def _optimizer(name: str) -> Any:
    import nevergrad

    everything = nevergrad.optimizers.registry
    known = [key for key in everything if not everything[key].no_parallelization]
    if name not in known:
        what = f"nevergrad has no optimizer {name!r} that can have several trials at once"
        raise BadConfigError(Problem(f"{OPTIONS}.optimizer", what, did_you_mean(name, known)))
    return everything[name]
