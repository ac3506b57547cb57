"""One of Ray Tune's searchers, made to fit this project's spaces and sweeps."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any

from ray.tune.search import Searcher
from threadpoolctl import threadpool_limits

from ditk_ray.search.space_codec import SpaceCodec


class ModelSearcher(Searcher):
    """Asks a searcher of Tune's for points, and tells it how they went.

    `inner` is completely set up: it has its space, its objectives and its seed. What trials
    report may be without the objective, or have a NaN: the searcher is spared that.
    """

    def __init__(self, inner: Searcher, codec: SpaceCodec) -> None:
        super().__init__(metric=inner.metric, mode=inner.mode)
        self.inner = inner
        self._codec = codec

    @property
    def objectives(self) -> tuple[str, ...]:
        """The names of the metrics that it looks at."""
        return (self.metric,) if isinstance(self.metric, str) else tuple(self.metric)

    def set_search_properties(
        self, metric: str | None, mode: str | None, config: dict[str, Any], **spec: Any
    ) -> bool:
        """Say that all is well: it knows its space and objectives already."""
        return True

    def set_max_concurrency(self, max_concurrent: int) -> bool:
        """Tell how many trials run at once; return whether the searcher keeps to it itself."""
        return bool(self.inner.set_max_concurrency(max_concurrent))

    def suggest(self, trial_id: str) -> Any:
        """Return the values of a new trial, None for "not now", or `FINISHED`."""
        # The model is computed in the driver, whose cores the trials use.
        with threadpool_limits(limits=1):
            suggested = self.inner.suggest(trial_id)
        if not isinstance(suggested, Mapping):
            return suggested
        return self._codec.decoded(suggested)

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        """Tell an evaluation on the way."""
        if self._has_scores(result):
            self.inner.on_trial_result(trial_id, result)

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        """Tell how a trial ended; without a score it counts as failed."""
        if error or not self._has_scores(result or {}):
            self.inner.on_trial_complete(trial_id, None, error=True)
        else:
            self.inner.on_trial_complete(trial_id, result, error=False)

    def on_pause(self, trial_id: str) -> None:
        """Tell BOHB's searcher that a trial waits."""
        if hasattr(self.inner, "on_pause"):
            self.inner.on_pause(trial_id)

    def on_unpause(self, trial_id: str) -> None:
        """Tell BOHB's searcher that a trial goes on."""
        if hasattr(self.inner, "on_unpause"):
            self.inner.on_unpause(trial_id)

    @property
    def can_learn(self) -> bool:
        """Whether it can be told of evaluations that were made elsewhere."""
        own = type(self.inner).add_evaluated_point
        return own is not Searcher.add_evaluated_point

    def learn(self, params: Mapping[str, Any], values: Sequence[float]) -> None:
        """Tell an evaluation that was made elsewhere; only if it `can_learn`."""
        value = values[0] if len(values) == 1 else list(values)
        self.inner.add_evaluated_point(self._codec.encoded(params), value)

    def save(self, checkpoint_path: str) -> None:
        """Write all that it learned to a file."""
        self.inner.save(checkpoint_path)

    def restore(self, checkpoint_path: str) -> None:
        """Go on from what `save` wrote, for the same space and objectives."""
        self.inner.restore(checkpoint_path)

    def _has_scores(self, result: Mapping[str, Any]) -> bool:
        values = [result.get(name) for name in self.objectives]
        return all(isinstance(value, Real) and math.isfinite(value) for value in values)
