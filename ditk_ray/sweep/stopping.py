"""What ends a sweep or a trial besides its rules: missing metrics, failures, losses, signals."""

from __future__ import annotations

import logging
import os
import re
import signal
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from numbers import Real
from typing import Any

from ray.tune import PlacementGroupFactory
from ray.tune.experiment import Trial
from ray.tune.stopper import Stopper

from ditk_ray.config.resources import TrialResources
from ditk_ray.errors import DitkRayError, MetricMissingError, NeedsMemoryError
from ditk_ray.record.record import SweepRecord, SweepStatus, TrialRecord, TrialState
from ditk_ray.record.trial_folder import split_error
from ditk_ray.sweep.observer import own_metrics, pickled_error
from ditk_ray.sweep.trials import NotPickled
from ditk_ray.trial.reports import ENDED, HOUR
from ditk_ray.util.suggest import nearest_names

_log = logging.getLogger(__name__)


@dataclass(eq=False)
class SweepStopper(NotPickled, Stopper):
    """Stops the whole sweep, and knows why.

    `needed` are the metrics that trials have to report, each with the field that wants it.
    `suspend` is called first when what runs is to be resumed another time.
    """

    needed: dict[str, str]
    may_come_last: bool
    suspend: Callable[[], None]
    max_same_failures: int
    error: DitkRayError | None = None
    is_interrupted: bool = False
    why: str | None = None
    _has_warned: bool = False

    def check(self, result: dict[str, Any]) -> None:
        """Look for the metrics in a result; a user's own function may return them last."""
        for name in set(self.needed) & set(result):
            del self.needed[name]
        if not self.needed or result.get(ENDED) in ("failed", "cancelled"):
            return  # all are there, or it says nothing of the others
        name, field = next(iter(self.needed.items()))
        metrics = own_metrics(result).items()
        reported = sorted(key for key, value in metrics if isinstance(value, Real))
        close = [f"did you mean {item!r}? " for item in nearest_names(name, reported, 1)]
        message = (
            f"{field} {name!r} is not among those that trials report: {', '.join(reported)}\n"
            f"{''.join(close)}set the JobCfg's `{field}` or --{field} to what is"
        )
        if ENDED in result or not self.may_come_last:
            self.error = MetricMissingError(message)
        elif not self._has_warned:
            self._has_warned = True
            _log.warning("%s, or return it from the entry", message)

    def look_at_end(self, record: SweepRecord, trial: TrialRecord) -> None:
        """Give up if all that has ended failed in the same way as this trial, and that is many."""
        if trial.state is not TrialState.FAILED or not self.max_same_failures:
            return
        ended = [one for one in record.trials.values() if one.state.is_final]
        way = _way(trial)
        if len(ended) >= self.max_same_failures and all(_way(one) == way for one in ended):
            self.suspend()
            said, _ = split_error(trial)
            self.why = f"its first {len(ended)} trials, which all failed in the same way: {said}"

    def interrupt(self) -> None:
        """End the sweep so that it can be resumed later."""
        self.suspend()
        self.is_interrupted = True

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        return False

    def stop_all(self) -> bool:
        return self.status is not SweepStatus.FINISHED

    @property
    def status(self) -> SweepStatus:
        """How the sweep ends, if it ends now."""
        if self.error is not None or self.why is not None:
            return SweepStatus.FAILED
        return SweepStatus.INTERRUPTED if self.is_interrupted else SweepStatus.FINISHED


def _way(trial: TrialRecord) -> str | None:
    if trial.state is not TrialState.FAILED:
        return None
    return re.sub(r"\d+(\.\d+)?(e[-+]?\d+)?", "#", split_error(trial)[0])


class Interrupts:
    """Ends the sweep cleanly at Ctrl-C, SIGTERM or a lost terminal, and at once at the second.

    Tune ends a run when it gets SIGUSR1; its own handling of Ctrl-C, which cannot be
    asked whether it happened, is off; `before` is called first. Before Tune listens, and
    outside the main thread, an interrupt is Python's usual one.
    """

    def __init__(self, before: Callable[[], None]) -> None:
        self._before = before
        self._has_happened = False
        self._earlier: dict[int, Any] = {}

    def __enter__(self) -> None:
        os.environ["TUNE_DISABLE_SIGINT_HANDLER"] = "1"
        if threading.current_thread() is threading.main_thread():
            self._earlier[signal.SIGUSR1] = signal.getsignal(signal.SIGUSR1)
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                self._earlier[number] = signal.signal(number, self._handle)
            if self._earlier[signal.SIGHUP] == signal.SIG_IGN:  # nohup
                signal.signal(signal.SIGHUP, signal.SIG_IGN)

    def __exit__(self, *_: object) -> None:
        for number, handler in self._earlier.items():
            signal.signal(number, handler)

    def _handle(self, number: int, frame: Any) -> None:
        listens = signal.getsignal(signal.SIGUSR1) is not self._earlier[signal.SIGUSR1]
        if self._has_happened or not listens:
            raise KeyboardInterrupt
        self._has_happened = True
        self._before()
        os.kill(os.getpid(), signal.SIGUSR1)


@dataclass
class LossPolicy:
    """Decides whether a trial's next loss is its last, and gives memory where allowed.

    Tune decides on a failure before it reports it, so what it may do is said beforehand:
    when a trial is added (`admit`), after each failure (`note`), and as time goes by
    (`look`). A trial whose need for more memory comes through the same door is not held to
    zero losses before it has got that.
    """

    per_hour: int
    resources: TrialResources
    clock: Callable[[], float] = time.monotonic
    _times: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    _has_grown: set[str] = field(default_factory=set)

    def note(self, trial: Trial) -> None:
        """Take note of a failure that reached Tune, before the trial is started again."""
        error = pickled_error(trial)
        if isinstance(error, NeedsMemoryError):
            self.grow(trial, error.memory)
        else:
            self._times[trial.trial_id].append(self.clock())
        self.admit(trial)

    def look(self, trials: Iterable[Trial]) -> None:
        for trial in trials:
            if trial.trial_id in self._times:
                self.admit(trial)

    def grow(self, trial: Trial, memory: int) -> None:
        """Have a trial that does not run started with this much memory."""
        larger = replace(self.resources, memory=memory).for_ray()
        trial.update_resources(PlacementGroupFactory([larger]))
        self._has_grown.add(trial.trial_id)

    def admit(self, trial: Trial) -> None:
        """Say to Tune whether it may start the trial again after its next loss."""
        now = self.clock()
        recent = [then for then in self._times.pop(trial.trial_id, ()) if now - then < HOUR]
        if recent:
            self._times[trial.trial_id] = recent
        may_grow = self.resources.max_memory and trial.trial_id not in self._has_grown
        is_at_limit = len(recent) >= max(self.per_hour, 1 if may_grow else 0)
        trial.max_failures = trial.num_failures if is_at_limit else -1  # no limit
