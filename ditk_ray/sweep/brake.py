"""Ending a whole sweep: in vain, hopeless, or because somebody asked."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from typing import Any

from ray.tune.stopper import Stopper

from ditk_ray.config.nearest import nearest_names
from ditk_ray.errors import DitkRayError, MetricMissingError
from ditk_ray.tracking.observer import own_metrics
from ditk_ray.tracking.record import SweepRecord, TrialRecord, TrialState
from ditk_ray.trial.report_keys import ENDED

_log = logging.getLogger(__name__)


class Brake(Stopper):
    """Stops the whole sweep, and knows why.

    `needed` are the metrics that trials have to report, each with the field that wants it.
    `suspend` is called first when what runs is to go on another time.
    """

    def __init__(
        self,
        needed: Mapping[str, str],
        may_come_last: bool,
        suspend: Callable[[], None],
        max_same_failures: int,
    ) -> None:
        self._needed = dict(needed)
        self._may_come_last = may_come_last
        self._suspend = suspend
        self._max_same_failures = max_same_failures
        self._has_warned = False
        self.error: DitkRayError | None = None
        self.is_interrupted = False
        self.why: str | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Leave nothing to be pickled: Tune keeps a copy that nobody restores."""
        return {}

    def check(self, result: dict[str, Any]) -> None:
        """Look for the metrics in a result; a user's own function may return them last."""
        for name in set(self._needed) & set(result):
            del self._needed[name]
        if not self._needed or result.get(ENDED) in ("failed", "cancelled"):
            return  # all are there, or it says nothing of the others
        name, field = next(iter(self._needed.items()))
        told = sorted(key for key, value in own_metrics(result).items() if _is_number(value))
        close = [f"did you mean {item!r}? " for item in nearest_names(name, told, 1)]
        message = (
            f"{field} {name!r} is not among those that trials report: {', '.join(told)}\n"
            f"{''.join(close)}set the JobCfg's `{field}` or --{field} to what is"
        )
        if ENDED in result or not self._may_come_last:
            self.error = MetricMissingError(message)
        elif not self._has_warned:
            self._has_warned = True
            _log.warning("%s, or return it from the entry", message)

    def look_at_end(self, record: SweepRecord, trial: TrialRecord) -> None:
        """Give up if all that has ended failed in the same way as this trial, and that is many."""
        if trial.state is not TrialState.FAILED or not self._max_same_failures:
            return
        ended = [one for one in record.trials.values() if one.state.is_final]
        ways = {_way(one) for one in ended}
        if len(ended) >= self._max_same_failures and ways == {_way(trial)}:
            self._suspend()
            said = (trial.error or "").partition(" [log: ")[0]
            self.why = f"its first {len(ended)} trials, which all failed in the same way: {said}"

    def interrupt(self) -> None:
        """End the sweep so that it can go on later."""
        self._suspend()
        self.is_interrupted = True

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        """Never end a single trial."""
        return False

    def stop_all(self) -> bool:
        """Say whether to end them all."""
        return self.error is not None or self.is_interrupted or self.why is not None


def _way(trial: TrialRecord) -> str | None:
    """Return how a trial failed, without what differs from trial to trial."""
    if trial.state is not TrialState.FAILED:
        return None
    said = (trial.error or "").partition(" [log: ")[0]
    return re.sub(r"\d+(\.\d+)?(e[-+]?\d+)?", "#", said)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
