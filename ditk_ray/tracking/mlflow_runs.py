"""Recording a sweep in MLflow: a parent run for the sweep, a child for each trial.

All calls to MLflow are made by one thread of its own. It never raises into the
sweep: after a failure it says so once and goes on trying with what comes next.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from mlflow import MlflowClient
from mlflow.entities import Metric, Param, RunTag
from mlflow.utils.mlflow_tags import MLFLOW_PARENT_RUN_ID, MLFLOW_RUN_NAME

from ditk_ray.config.space import SearchSpace
from ditk_ray.tracking.record import SweepRecord, SweepStatus, TrialRecord, TrialState

EXPERIMENT = "ditk_ray"
FLUSH_SECONDS = 60.0

_log = logging.getLogger(__name__)
_STATUSES = {
    TrialState.SUCCEEDED: "FINISHED",
    TrialState.STOPPED: "FINISHED",
    TrialState.PRUNED: "FINISHED",
    TrialState.FAILED: "FAILED",
}
_SWEEP_STATUSES = {
    SweepStatus.FINISHED: "FINISHED",
    SweepStatus.FAILED: "FAILED",
    SweepStatus.INTERRUPTED: "KILLED",
}


class MlflowRuns:
    """A listener that records a sweep on the MLflow server, or in the store, at `uri`."""

    def __init__(self, uri: str, space: SearchSpace) -> None:
        self._client = MlflowClient(tracking_uri=uri)
        self._uri = uri
        self._space = space
        self._experiment = ""
        self._parent = ""
        self._children: dict[str, str] = {}
        self._calls: queue.Queue[Callable[[], None] | None] = queue.Queue()
        self._has_failed = False
        self._thread = threading.Thread(target=self._work, name="mlflow", daemon=True)

    def started(self, record: SweepRecord) -> None:
        """Make the parent run."""
        self._thread.start()
        self._calls.put(lambda: self._make_parent(record))

    def reported(self, record: SweepRecord, trial: TrialRecord) -> None:
        """Log a trial's newest metrics, with `env_step` for the step."""
        metrics, now = dict(trial.metrics), int(time.time() * 1000)
        self._calls.put(lambda: self._log_metrics(trial, metrics, now))

    def changed(self, record: SweepRecord, trial: TrialRecord) -> None:
        """Log a trial's state; the first one makes its run."""
        state, error = trial.state, trial.error
        self._calls.put(lambda: self._log_state(trial, state, error))

    def refreshed(self, record: SweepRecord) -> None:
        """Do nothing: every change was told already."""

    def ended(self, record: SweepRecord) -> None:
        """Log the outcome, and wait until everything has been sent."""
        self._calls.put(lambda: self._close(record))
        self._calls.put(None)
        self._thread.join(FLUSH_SECONDS)
        if self._thread.is_alive():
            _log.warning("MLflow at %s is slow: not everything was recorded", self._uri)

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            try:
                call()
            except Exception as error:
                if not self._has_failed:
                    _log.warning("MLflow at %s does not record: %s", self._uri, error)
                self._has_failed = True

    def _make_parent(self, record: SweepRecord) -> None:
        found = self._client.get_experiment_by_name(EXPERIMENT)
        self._experiment = (
            found.experiment_id if found else self._client.create_experiment(EXPERIMENT)
        )
        names = [parameter.name for parameter in self._space.parameters if parameter.is_sampled]
        tags = {
            MLFLOW_RUN_NAME: record.name,
            "ditk_ray.metric": record.metric,
            "ditk_ray.mode": record.mode,
            "ditk_ray.parameters": ", ".join(names),
        }
        self._parent = self._client.create_run(self._experiment, tags=tags).info.run_id

    def _child(self, trial: TrialRecord) -> str:
        if trial.id not in self._children:
            tags = {MLFLOW_RUN_NAME: trial.id, MLFLOW_PARENT_RUN_ID: self._parent}
            run = self._client.create_run(self._experiment, tags=tags)
            self._children[trial.id] = run.info.run_id
            self._client.log_batch(run.info.run_id, params=_params(trial.params))
        return self._children[trial.id]

    def _log_metrics(self, trial: TrialRecord, metrics: Mapping[str, Any], now: int) -> None:
        step = int(metrics.get("env_step") or 0)
        numbers = {key: value for key, value in metrics.items() if isinstance(value, (int, float))}
        self._client.log_batch(
            self._child(trial), [Metric(key, value, now, step) for key, value in numbers.items()]
        )

    def _log_state(self, trial: TrialRecord, state: TrialState, error: str | None) -> None:
        run = self._child(trial)
        tags = [RunTag("ditk_ray.state", state)]
        self._client.log_batch(
            run, tags=tags + ([RunTag("ditk_ray.error", error)] if error else [])
        )
        if state in _STATUSES:
            self._client.set_terminated(run, _STATUSES[state])

    def _close(self, record: SweepRecord) -> None:
        for trial in record.trials.values():
            if trial.id in self._children and not trial.state.is_final:
                self._client.set_terminated(self._children[trial.id], "KILLED")
        best = record.best()
        if best is not None:
            score = Metric(f"best_{record.metric}", record.score(best), int(time.time() * 1000), 0)
            tags = [RunTag("ditk_ray.best_trial", best.id)]
            self._client.log_batch(self._parent, [score], _params(best.params), tags)
        self._client.set_terminated(self._parent, _SWEEP_STATUSES[record.status])


def _params(values: Mapping[str, Any]) -> list[Param]:
    return [Param(key, str(value)) for key, value in values.items()]
