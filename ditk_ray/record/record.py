"""The record of a sweep: the values behind `sweep.json`.

Other tools read that file while the sweep runs, so it is replaced whole and
never half-written.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from enum import StrEnum
from numbers import Real
from pathlib import Path
from typing import Any

from ditk_ray.config.terms import Mode, Objective
from ditk_ray.errors import BadConfigError, Problem
from ditk_ray.util.files import write_whole
from ditk_ray.util.plain import json_text

VERSION = 1
RECORD_FILE = "sweep.json"

Point = tuple[float, ...]
"""A trial's objectives, each with the sign by which less is better."""


class TrialState(StrEnum):
    """Where a trial stands."""

    PENDING = "pending"
    RUNNING = "running"
    PAUSED = "paused"
    SUCCEEDED = "succeeded"
    STOPPED = "stopped"
    PRUNED = "pruned"
    FAILED = "failed"

    @property
    def is_final(self) -> bool:
        return self not in (TrialState.PENDING, TrialState.RUNNING, TrialState.PAUSED)


class SweepStatus(StrEnum):
    """Where a sweep stands."""

    RUNNING = "running"
    FINISHED = "finished"
    FAILED = "failed"
    INTERRUPTED = "interrupted"


@dataclass
class TrialRecord:
    """One trial: `metrics` are its last ones, `best_metrics` those of its best evaluation."""

    id: str
    params: dict[str, Any]
    state: TrialState = TrialState.PENDING
    metrics: dict[str, Any] = field(default_factory=dict)
    best_metrics: dict[str, Any] = field(default_factory=dict)
    dir: str = ""
    error: str | None = None
    why: str | None = None
    """What ended it early: a rule such as `plateau(eval_value, 5)`, if one did."""
    result: Any = None
    reports: int = 0
    attempt: int = 0
    node: str | None = None
    started: str | None = None
    ended: str | None = None
    changes: list[dict[str, Any]] = field(default_factory=list)
    """What a scheduler made of `params` on the way: `{env_step, params}`, oldest first."""
    failures: list[dict[str, Any]] = field(default_factory=list)
    """The attempts that failed: `{attempt, kind, error, log, time, node}`, oldest first."""
    priority: int = 0
    is_held: bool = False
    """Whether a person has paused it."""

    def set_params(self, params: dict[str, Any]) -> bool:
        """Take the parameters that it continues with; say whether a scheduler has changed them."""
        if params == self.params:
            return False
        step = self.metrics.get("env_step") or 0
        self.changes = self.changes or [{"env_step": 0, "params": self.params}]
        self.changes.append({"env_step": step, "params": params})
        self.params = params
        return True


@dataclass
class SweepRecord:
    """A sweep and all of its trials, in the order they were made."""

    name: str
    metric: str
    mode: Mode
    status: SweepStatus = SweepStatus.RUNNING
    started: str = ""
    ended: str | None = None
    job: dict[str, Any] = field(default_factory=dict)
    """What was asked for: the `JobCfg` and its space as plain data."""
    trials: dict[str, TrialRecord] = field(default_factory=dict)
    worked_seconds: float = 0.0
    """How long processes have worked on it, all together."""
    more_objectives: tuple[Objective, ...] = ()
    """The objectives after the first, which is `metric` and `mode`."""
    why: str | None = None
    """The rule that ended it before its trials were done, if one did."""
    _texts: dict[str, str] = field(default_factory=dict, repr=False, compare=False)

    @property
    def objectives(self) -> tuple[Objective, ...]:
        return Objective(self.metric, self.mode), *self.more_objectives

    def pareto_set(self) -> list[TrialRecord]:
        """Return the trials that none beats in every objective, the best by the first one first.

        A trial counts by its best evaluation by the first objective, with all objectives as
        they were at that evaluation. Of equal trials all are kept; those without a number for
        each objective are left out. With a single objective the set is empty.
        """
        if not self.more_objectives:
            return []
        pairs = [(trial, self._point(trial)) for trial in self.trials.values()]
        known = [(trial, point) for trial, point in pairs if point is not None]
        return [known[place][0] for place in non_dominated([point for _, point in known])]

    def add_report(self, trial: TrialRecord, metrics: dict[str, Any]) -> None:
        trial.reports += 1
        trial.metrics = metrics
        if self.rank(metrics) < self.rank(trial.best_metrics):
            trial.best_metrics = metrics

    def ranked(self) -> list[TrialRecord]:
        """Return all trials, the best first and those without a score last."""
        return sorted(self.trials.values(), key=lambda trial: self.rank(trial.best_metrics))

    def best(self) -> TrialRecord | None:
        """Return the trial with the best evaluation; of equals, the one with fewest steps."""
        scored = [trial for trial in self.trials.values() if self.score(trial) is not None]
        return min(scored, key=lambda trial: self.rank(trial.best_metrics), default=None)

    def score(self, trial: TrialRecord) -> float | None:
        """Return the metric at the trial's best evaluation."""
        return finite(trial.best_metrics.get(self.metric))

    def is_better(self, score: float, other: float) -> bool:
        return score > other if self.mode == "max" else score < other

    def counts(self) -> Counter[TrialState]:
        return Counter(trial.state for trial in self.trials.values())

    def rank(self, metrics: Mapping[str, Any]) -> tuple[float, float]:
        """Return a key that is smaller for better metrics."""
        value = finite(metrics.get(self.metric))
        if value is None:
            return math.inf, math.inf
        return -value if self.mode == "max" else value, metrics.get("env_step") or 0

    def _point(self, trial: TrialRecord) -> Point | None:
        values = [finite(trial.best_metrics.get(item.metric)) for item in self.objectives]
        pairs = zip(values, self.objectives, strict=True)
        signed = [-value if o.mode == "max" else value for value, o in pairs if value is not None]
        return tuple(signed) if len(signed) == len(values) else None

    def as_dict(self) -> dict[str, Any]:
        return {**self._outline(), "trials": [vars(trial) for trial in self.trials.values()]}

    def as_text(self) -> str:
        """Return the text of `sweep.json`, a line for each trial.

        It is written about once a second: those of trials that have ended are kept.
        """
        outline = json_text(self._outline(), indent=1).removesuffix("\n}")
        trials = ",\n  ".join(self._text_of(trial) for trial in self.trials.values())
        return f'{outline},\n "trials": [\n  {trials}\n ]\n}}\n'

    def _text_of(self, trial: TrialRecord) -> str:
        if not trial.state.is_final:
            self._texts.pop(trial.id, None)
            return json_text(vars(trial))
        if trial.id not in self._texts:
            self._texts[trial.id] = json_text(vars(trial))
        return self._texts[trial.id]

    def _outline(self) -> dict[str, Any]:
        best = self.best()
        pareto = [trial.id for trial in self.pareto_set()]
        return {
            "version": VERSION,
            "name": self.name,
            "status": self.status,
            "why": self.why,
            "metric": self.metric,
            "mode": self.mode,
            "objectives": [vars(objective) for objective in self.objectives],
            "started": self.started,
            "ended": self.ended,
            "worked_seconds": round(self.worked_seconds, 1),
            "counts": {state: number for state, number in self.counts().items() if number},
            "job": self.job,
            "best": best and {**vars(best), "score": self.score(best)},
            **({"pareto": pareto} if self.more_objectives else {}),
        }


def read_record(folder: Path) -> SweepRecord:
    """Read `sweep.json`; trials are where they are now, should the folder have been moved.

    Raises `BadConfigError` if there is none, or if it is from a later version.
    """
    path = folder / RECORD_FILE
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if data["version"] > VERSION:
            what = f"is of format {data['version']}; this version of ditk_ray reads {VERSION}"
            raise BadConfigError(Problem(str(path), what, "update ditk_ray"))
        return _from_dict(data, folder)
    except FileNotFoundError as error:
        hint = "a sweep's folder has a file of that name"
        raise BadConfigError(Problem(str(path), "there is no such file", hint)) from error
    except (OSError, ValueError, KeyError, TypeError) as error:
        what = f"cannot be read: {type(error).__name__}: {error}"
        raise BadConfigError(Problem(str(path), what)) from error


def _from_dict(data: Mapping[str, Any], folder: Path) -> SweepRecord:
    objectives = [Objective(row["metric"], row["mode"]) for row in data.get("objectives", ())]
    values = {
        **_known(SweepRecord, data),
        "status": SweepStatus(data["status"]),
        "trials": {row["id"]: trial_from_dict(row, folder) for row in data["trials"]},
        "more_objectives": tuple(objectives[1:]),
    }
    return SweepRecord(**values)


def trial_from_dict(row: Mapping[str, Any], folder: Path) -> TrialRecord:
    """Return the trial that `sweep.json` has as this row, in the sweep's folder as it is now."""
    values = {"state": TrialState(row["state"]), "dir": str(folder / row["id"])}
    return TrialRecord(**_known(TrialRecord, row) | values)


def _known(kind: type[SweepRecord | TrialRecord], row: Mapping[str, Any]) -> dict[str, Any]:
    names = {item.name for item in fields(kind)}
    return {key: value for key, value in row.items() if key in names}


def write_record(record: SweepRecord, folder: Path) -> None:
    write_whole(folder / RECORD_FILE, record.as_text())


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def seconds_between(started: str | None, ended: str | None) -> float | None:
    if not started or not ended:
        return None
    span = datetime.fromisoformat(ended) - datetime.fromisoformat(started)
    return max(0.0, span.total_seconds())


def finite(value: Any) -> float | None:
    """Return a metric's value as a number; None for what cannot be compared."""
    return float(value) if isinstance(value, Real) and math.isfinite(value) else None


def non_dominated(points: Sequence[Point]) -> list[int]:
    """Return the places of the points that no other point dominates, in order of the points.

    One dominates another if it is nowhere greater, and somewhere less.
    """
    order = sorted(range(len(points)), key=lambda place: points[place])
    # In this order a point is only dominated by points before it.
    return (_front_of_two if points and len(points[0]) <= 2 else _front_of_many)(points, order)


def _front_of_two(points: Sequence[Point], order: Sequence[int]) -> list[int]:
    kept: list[int] = []
    for place in order:
        point = points[place]
        if not kept or point[-1] < points[kept[-1]][-1] or point == points[kept[-1]]:
            kept.append(place)
    return kept


def _front_of_many(points: Sequence[Point], order: Sequence[int]) -> list[int]:
    import numpy as np  # not for those who only read a record

    values = np.array(points)
    front = np.empty_like(values)
    kept: list[int] = []
    for place in order:
        known, point = front[: len(kept)], values[place]
        if not ((known <= point).all(axis=1) & (known < point).any(axis=1)).any():
            front[len(kept)] = point
            kept.append(place)
    return kept
