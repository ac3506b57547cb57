"""Following a sweep: Tune's events become a `SweepRecord`, on disk and for listeners."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import cloudpickle
from ray.tune import Callback
from ray.tune.experiment import Trial
from ray.tune.result import HOSTNAME, TRAINING_ITERATION

from ditk_ray.config.space import SearchSpace
from ditk_ray.config.terms import FailureKind
from ditk_ray.errors import NeedsMemoryError, first_line
from ditk_ray.record.record import (
    RECORD_FILE,
    SweepRecord,
    SweepStatus,
    TrialRecord,
    TrialState,
    now,
    write_record,
)
from ditk_ray.search.stoppers import NO_METRICS, RuleStopper
from ditk_ray.sweep.trials import NotPickled
from ditk_ray.trial.reports import ATTEMPT, ENDED, FAILURE, FAILURES, RESULT, Failure, FailureLog

_log = logging.getLogger(__name__)

REFRESH_SECONDS = 1.0
"""How old `sweep.json` may be."""

_LIVE_STATES = {
    Trial.PENDING: TrialState.PENDING,
    Trial.RUNNING: TrialState.RUNNING,
    Trial.PAUSED: TrialState.PAUSED,
}
_END_STATES = {
    "training": TrialState.SUCCEEDED,
    "nan": TrialState.PRUNED,
    "failed": TrialState.FAILED,
}
CANCELLED = "cancelled"
"""Why a trial ended that a user has cancelled."""

_WHYS = {"time": "time limit", "cancelled": CANCELLED}


class SweepListener(Protocol):
    """A follower of a sweep. Called on Tune's event loop: be quick.

    `reported` is about a trial's newest metrics, `changed` about its new state; `refreshed` comes
    about once a second, whatever happens.
    """

    def started(self, record: SweepRecord) -> None: ...
    def reported(self, record: SweepRecord, trial: TrialRecord) -> None: ...
    def changed(self, record: SweepRecord, trial: TrialRecord) -> None: ...
    def refreshed(self, record: SweepRecord) -> None: ...
    def ended(self, record: SweepRecord) -> None: ...


class SweepObserver(NotPickled, Callback):
    """Keeps the record of a sweep current, and `sweep.json` with it.

    `check` is called with each result, and `note_end` with each trial that ends, before any
    listener is.
    """

    def __init__(
        self,
        record: SweepRecord,
        folder: Path,
        space: SearchSpace,
        listeners: Sequence[SweepListener] = (),
        stopper: RuleStopper | None = None,
    ) -> None:
        self.record = record
        self._folder = folder
        self._space = space
        self._listeners = list(listeners)
        self._stopper = stopper
        self.check: Callable[[dict[str, Any]], None] = lambda result: None
        self.note_end: Callable[[TrialRecord], None] = lambda trial: None
        self._last_trials: Sequence[Trial] = ()
        self._running: dict[str, Trial] = {}
        self._next_refresh = 0.0
        self._has_warned = False
        self._failed: set[str] = set()
        self._is_suspended = False
        self._worked_before = record.worked_seconds
        self._begun = time.monotonic()

    def begin(self) -> None:
        self.record.started = self.record.started or now()
        self._begun = time.monotonic()
        write_record(self.record, self._folder)  # a disk that is full already is an error
        self._tell("started")

    def suspend(self) -> None:
        """Note that the sweep is being interrupted: trials that Tune ends now are not over."""
        self._is_suspended = True

    def settle(self, status: SweepStatus, why: str | None = None) -> None:
        """Write the last record: what did not end is where a later run would resume."""
        self._sync()
        self.record.why = why or (self._stopper.why if self._stopper else None)
        for trial in self.record.trials.values():
            if trial.state is TrialState.RUNNING:
                trial.state = TrialState.PAUSED
        self.record.status = status
        self.record.ended = now()
        self._write()

    def end(self) -> None:
        """Tell the listeners that the record is settled and all of the sweep's files are there."""
        self._tell("ended")

    def on_step_end(self, iteration: int, trials: list[Trial], **info: Any) -> None:
        self._last_trials = trials
        self._notice_stopped()
        begun = time.monotonic()
        if begun < self._next_refresh:
            return
        self._sync()
        self._write()
        self._tell("refreshed")
        # With thousands of trials the file is large: never spend over a
        # twentieth of the event loop's time on it.
        spent = time.monotonic() - begun
        self._next_refresh = time.monotonic() + max(REFRESH_SECONDS, 20 * spent)

    def on_trial_start(self, iteration: int, trials: list[Trial], trial: Trial, **i: Any) -> None:
        record = self._record_of(trial)
        is_changed = record.set_params(self._space.active(trial.config))
        record.started = record.started or now()
        self._running[record.id] = trial
        if is_changed and record.state is TrialState.RUNNING:
            self._tell("changed", record)
        self._set_state(record, TrialState.RUNNING)

    def on_trial_result(
        self, iteration: int, trials: list[Trial], trial: Trial, result: dict[str, Any], **i: Any
    ) -> None:
        record = self._record_of(trial)
        record.failures = result.get(FAILURES, record.failures)
        if FAILURE in result:  # it has no metrics
            record.error = result[FAILURE]["error"]
            return
        self.check(result)
        self.record.add_report(record, own_metrics(result))
        record.result = result.get(RESULT, record.result)
        record.attempt = result.get(ATTEMPT, record.attempt)
        record.node = result.get(HOSTNAME, record.node)
        self._tell("reported", record)

    def on_trial_complete(
        self, iteration: int, trials: list[Trial], trial: Trial, **i: Any
    ) -> None:
        ended = (trial.last_result or {}).get(ENDED)
        state = _END_STATES.get(str(ended), TrialState.STOPPED)
        record = self._record_of(trial)
        if state is TrialState.STOPPED:
            # Without a rule that ended it, a scheduler did.
            rule = self._stopper.reason(trial.trial_id) if self._stopper else None
            record.why = _WHYS.get(str(ended), rule)
        self._set_state(record, state)

    def on_trial_recover(self, iteration: int, trials: list[Trial], trial: Trial, **i: Any) -> None:
        record = self._record_of(trial)
        self._note_lost(record, trial)
        self._set_state(record, TrialState.PENDING)

    def on_trial_error(self, iteration: int, trials: list[Trial], trial: Trial, **i: Any) -> None:
        record = self._record_of(trial)
        self._note_lost(record, trial)
        record.error = error_of(trial)
        self._set_state(record, TrialState.FAILED)

    def _note_lost(self, record: TrialRecord, trial: Trial) -> None:
        """Keep what Tune itself saw fail, an actor or a node, with the trial's own failures."""
        folder = Path(record.dir)
        with contextlib.suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)  # it may not have come that far
        log = FailureLog(folder)
        if not isinstance(pickled_error(trial), NeedsMemoryError):  # which the trial has noted
            where = record.node or "unknown"
            log.add(Failure(FailureKind.LOST, error_of(trial), record.attempt, node=where))
        record.failures = [vars(failure) for failure in log.failures]

    def _record_of(self, trial: Trial) -> TrialRecord:
        name = str(trial)
        if name not in self.record.trials:
            self.record.trials[name] = TrialRecord(
                name, self._space.active(trial.config), dir=str(self._folder / name)
            )
        return self.record.trials[name]

    def _set_state(self, record: TrialRecord, state: TrialState) -> None:
        if record.state is state:
            return
        record.state = state
        record.ended = now() if state.is_final else None
        if state.is_final:
            self.note_end(record)
        self._tell("changed", record)

    def _tell(self, event: str, *trial: TrialRecord) -> None:
        """Call every listener; one that fails cannot harm the sweep, and hears of the rest."""
        for listener in self._listeners:
            try:
                getattr(listener, event)(self.record, *trial)
            except Exception as error:
                name = type(listener).__name__
                if name not in self._failed:
                    _log.warning("%s fails: %s: %s", name, type(error).__name__, error)
                self._failed.add(name)

    def _write(self) -> None:
        """Write the record; a disk that is full for a while must not end the sweep."""
        self.record.worked_seconds = self._worked_before + time.monotonic() - self._begun
        try:
            write_record(self.record, self._folder)
        except OSError as error:
            if not self._has_warned:
                _log.warning("%s cannot be written: %s", self._folder / RECORD_FILE, error)
            self._has_warned = True

    def _notice_stopped(self) -> None:
        """Learn of trials that ended with the whole sweep: Tune does not announce those."""
        for name, trial in list(self._running.items()):
            if trial.status != Trial.RUNNING:
                del self._running[name]
            record, is_over = self.record.trials[name], trial.status == Trial.TERMINATED
            if is_over and not record.state.is_final and not self._is_suspended:
                record.why = self._stopper.why if self._stopper else None
                self._set_state(record, TrialState.STOPPED)

    def _sync(self) -> None:
        """Learn of trials that are new, paused or waiting: Tune announces none of it."""
        for trial in self._last_trials:
            record = self._record_of(trial)
            if not record.state.is_final and trial.status in _LIVE_STATES:
                self._set_state(record, _LIVE_STATES[trial.status])


def own_metrics(result: dict[str, Any]) -> dict[str, Any]:
    """Return what a trial itself reported, without what Tune adds to each result."""
    kept = {key: value for key, value in result.items() if key not in NO_METRICS}
    return kept | {TRAINING_ITERATION: result.get(TRAINING_ITERATION)}


def pickled_error(trial: Trial) -> BaseException | None:
    """Return a trial's last error that reached Tune, as it was raised."""
    # Tune has written it beside its own state on this host, and not yet elsewhere.
    file = trial.pickled_error_file
    error = cloudpickle.loads(Path(file).read_bytes()) if file else None
    return getattr(error, "cause", None) or error


def error_of(trial: Trial) -> str:
    """Return, in a line, what Tune says of a trial's last error."""
    # A lost actor explains itself over many lines; its first says it.
    return first_line(pickled_error(trial) or Exception("unknown error"))
