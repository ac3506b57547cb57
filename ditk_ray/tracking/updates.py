"""From the events of a journal to what each MLflow run has to learn."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from mlflow.entities import Metric
from mlflow.utils.mlflow_tags import MLFLOW_RUN_NOTE
from mlflow.utils.validation import MAX_PARAM_VAL_LENGTH

from ditk_ray.config.jsonable import json_text
from ditk_ray.config.parameter_text import show_description
from ditk_ray.tracking.event_log import Event
from ditk_ray.tracking.record import SweepStatus, TrialState
from ditk_ray.tracking.run_store import metrics_of

_log = logging.getLogger(__name__)

PARENT = ""
"""The place of the sweep's own run among those of its trials."""

TAG = "ditk_ray."
_TRIAL_STATUSES = {
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


@dataclass
class RunUpdate:
    """All that some events say of one run."""

    trial: str
    time: int
    """When the first of them happened; a run that is made by it starts then."""
    params: dict[str, Any] = field(default_factory=dict)
    """Logged when the run is made: MLflow does not let them change."""
    tags: dict[str, Any] = field(default_factory=dict)
    metrics: list[Metric] = field(default_factory=list)
    texts: dict[str, str] = field(default_factory=dict)
    status: str | None = None
    """How the run ended, or RUNNING if it goes on after an end."""
    ended: int = 0
    best_trial: str = ""
    """Of the sweep, known at its end."""


class UpdateCollector:
    """Puts consecutive events together into an update for each run they are about."""

    def __init__(self) -> None:
        self._updates: dict[str, RunUpdate] = {}
        self._endings: list[RunUpdate] = []

    def collect(self, events: Iterable[Event]) -> list[RunUpdate]:
        """Return the updates in the order to make them.

        The parent comes first, since its children refer to it, but its end comes
        last: the sweep's run is not over before all of its trials' are.
        """
        for event in events:
            take = getattr(self, f"_take_{event['kind']}", None)
            if take is None:  # a later version may know more kinds
                continue
            try:
                take(event, self._update(event.get("trial", PARENT), event["time"]))
            except Exception as error:
                # One that cannot be understood must not hold up those after it.
                _log.warning("passed over %s: %s: %s", event["kind"], type(error).__name__, error)
        updates = sorted(self._updates.values(), key=lambda update: update.trial != PARENT)
        return [*updates, *self._endings]

    def _update(self, trial: str, time: int) -> RunUpdate:
        return self._updates.setdefault(trial, RunUpdate(trial, time))

    def _take_sweep(self, event: Event, update: RunUpdate) -> None:
        job = event["job"]
        self._endings = []  # it goes on
        update.status = "RUNNING"
        update.params |= dict(_flat({key: value for key, value in job.items() if key != "space"}))
        update.params |= {
            f"space.{name}": show_description(item) for name, item in job.get("space", {}).items()
        }
        update.tags |= {
            f"{TAG}sweep": event["name"],
            f"{TAG}metric": event["metric"],
            f"{TAG}mode": event["mode"],
            f"{TAG}folder": event["folder"],
            f"{TAG}state": SweepStatus.RUNNING,
        }
        update.texts["job.json"] = json_text(job, indent=1)

    def _take_trial(self, event: Event, update: RunUpdate) -> None:
        update.params |= event["params"]
        update.tags |= _prefixed(TAG, event["tags"])
        if any(len(str(value)) > MAX_PARAM_VAL_LENGTH for value in event["params"].values()):
            update.texts["params.json"] = json_text(event["params"], indent=1)

    def _take_metrics(self, event: Event, update: RunUpdate) -> None:
        update.metrics += metrics_of(event["values"], event["step"], event["time"])

    def _take_change(self, event: Event, update: RunUpdate) -> None:
        """Keep what a scheduler changed: the last values as tags, all of them as metrics."""
        named = _prefixed("param.", event["params"])
        update.tags |= _prefixed(TAG, named)
        if event["before"] is not None:  # where the first change came from belongs to it
            before = _prefixed("param.", event["before"])
            update.metrics += metrics_of(before, 0, event["time"])
        update.metrics += metrics_of(named, event["step"], event["time"])

    def _take_state(self, event: Event, update: RunUpdate) -> None:
        state = TrialState(event["state"])
        update.tags |= {f"{TAG}state": state, **_prefixed(TAG, event["tags"])}
        update.status = _TRIAL_STATUSES.get(state, "RUNNING")
        update.ended = event["time"]

    def _take_progress(self, event: Event, update: RunUpdate) -> None:
        best = event["best"]
        finished = sum(n for state, n in event["counts"].items() if TrialState(state).is_final)
        # Those that have become none are told, too.
        counts = {f"trials_{state}": event["counts"].get(state, 0) for state in TrialState}
        update.metrics += metrics_of(counts, finished, event["time"])
        if best is not None:
            score = {f"best_{best['metric']}": best["score"]}
            update.metrics += metrics_of(score, finished, event["time"])
            update.tags[f"{TAG}best_trial"] = best["trial"]
            update.tags |= _prefixed(f"{TAG}best.", best["params"])
            update.tags[MLFLOW_RUN_NOTE] = _note_on(best, event["counts"])
        if event.get("pareto"):
            update.tags[f"{TAG}pareto_set"] = ", ".join(event["pareto"])

    def _take_end(self, event: Event, update: RunUpdate) -> None:
        status = SweepStatus(event["status"])
        ending = RunUpdate(PARENT, event["time"], status=_SWEEP_STATUSES[status])
        ending.tags[f"{TAG}state"] = status
        ending.ended = event["time"]
        ending.best_trial = event["best_trial"]
        self._endings = [ending]
        for trial in event["unfinished"]:
            child = self._update(trial, event["time"])
            child.status, child.ended = "KILLED", event["time"]


def _note_on(best: Mapping[str, Any], counts: Mapping[str, int]) -> str:
    """Return what MLflow's UI shows as the description of the sweep's run."""
    shown = ", ".join(f"{number} {state}" for state, number in sorted(counts.items()))
    rows = "".join(f"| `{name}` | {value} |\n" for name, value in best["params"].items())
    return (
        f"Best: {best['trial']}, {best['metric']} {best['score']:g}. Trials: {shown}.\n\n"
        f"| parameter | of the best |\n|---|---|\n{rows}"
    )


def _prefixed(prefix: str, values: Mapping[str, Any]) -> dict[str, Any]:
    return {prefix + name: value for name, value in values.items()}


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        elif value is not None:
            yield prefix + key, value if isinstance(value, str) else json.dumps(value)
