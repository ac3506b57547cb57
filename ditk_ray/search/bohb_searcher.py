"""The searcher of BOHB, which goes with the scheduler of the same name."""

from __future__ import annotations

from typing import Any

import numpy as np
from ray.tune.search import Searcher
from ray.tune.search.bohb import TuneBOHB

from ditk_ray.search.options import settings_of
from ditk_ray.search.searcher_request import SearcherRequest

_OURS = ("configspace",)


class _Bohb(TuneBOHB):
    """Tune's, with draws of its own: the package draws from numpy's global state."""

    def __init__(self, seed: int | None, **settings: Any) -> None:
        self._draws = np.random.RandomState(seed).get_state()
        super().__init__(seed=seed, **settings)

    def suggest(self, trial_id: str) -> dict[str, Any] | None:
        others = np.random.get_state()
        np.random.set_state(self._draws)
        try:
            suggested: dict[str, Any] | None = super().suggest(trial_id)
        finally:
            self._draws = np.random.get_state()
            np.random.set_state(others)
        return suggested


def build_bohb(request: SearcherRequest) -> Searcher:
    """Return BOHB's model, which learns at every rung of the brackets."""
    searcher = _Bohb(
        request.seed,
        metric=request.metric,
        mode=request.mode,
        bohb_config=dict(request.options),
        points_to_evaluate=request.handed_points(),
    )
    searcher.set_search_properties(None, None, dict(request.domains))
    return searcher


def bohb_settings() -> dict[str, str]:
    """Return what its model takes."""
    from hpbandster.optimizers.config_generators.bohb import BOHB

    return settings_of(BOHB.__init__, without=_OURS)
