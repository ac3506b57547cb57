"""What the report says in words, rows and columns: the outcome, the trials, what was asked for."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ditk_ray.provenance.snapshot import PROVENANCE_FILE, PROVENANCE_FOLDER, VERSION
from ditk_ray.record.record import SweepStatus, TrialState
from ditk_ray.record.trial_folder import split_error, tail
from ditk_ray.report.data import (
    MISSING,
    SweepData,
    TrialData,
    count,
    is_number,
    short_names,
    show,
    show_count,
)
from ditk_ray.util.units import show_seconds

Rows = list[tuple[str, str]]

LINES = 20
"""How much of a log is shown."""

SHOWN = 20
"""How many kinds of failures are shown with a log."""

UNKNOWN_NODE = "unknown node"
_ENDED = [state for state in TrialState if state.is_final]
STATES = [*_ENDED, TrialState.RUNNING, TrialState.PAUSED, TrialState.PENDING]
"""As the page lists them: those that end a trial first."""

_EARLY = (TrialState.STOPPED, TrialState.PRUNED)
_ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|[\x00-\x08\x0b-\x1f\x7f]")


def headline(sweep: SweepData) -> str:
    """Say how many trials took how long, which is the best, and what went wrong."""
    parts = [f"{_course(sweep)}: {_outcome(sweep)}."]
    if sweep.pareto:
        verb = "is" if len(sweep.pareto) == 1 else "are"
        parts.append(f"{count(len(sweep.pareto), 'trial')} {verb} in the Pareto set.")
    failed = sweep.record.counts()[TrialState.FAILED]
    if failed and failed == len(sweep.trials):
        parts.append("It failed." if failed == 1 else "All of them failed.")
    elif failed:
        parts.append(f"{count(failed, 'trial')} failed.")
    return " ".join(parts)


def _course(sweep: SweepData) -> str:
    took = "" if sweep.seconds is None else show_seconds(sweep.seconds)
    trials = count(len(sweep.trials), "trial")
    if sweep.is_running or sweep.record.status is SweepStatus.INTERRUPTED:
        course = "Still running" if sweep.is_running else "Interrupted"
        ended = sum(trial.record.state.is_final for trial in sweep.trials)
        return f"{course}{took and f' after {took}'}, {ended} of {trials} ended"
    why = f", ended by {sweep.record.why}" if sweep.record.why else ""
    return f"{trials}{took and f' in {took}'}{why}"


def _outcome(sweep: SweepData) -> str:
    best = sweep.best
    if best is None or best.score is None:
        nothing = "none got a score" if sweep.trials else "nothing was tried"
        return nothing + (" yet" if sweep.is_running else "")
    after = ""
    if best.best_step is not None:
        after = f" after {show_count(best.best_step)} environment steps"
    reached = f"reached {sweep.record.metric} {show(best.score)}{after}"
    if len(sweep.trials) == 1:
        return f"{best.id} {reached}"
    so_far = " so far" if sweep.is_running else ""
    return f"the best{so_far}, {best.id}, {reached}"


def usage_rows(sweep: SweepData) -> Rows:
    """Return time and resources; what is not known is left out."""
    wall, trained = sweep.seconds, sum(trial.seconds for trial in sweep.trials)
    resources = sweep.record.job.get("resources") or {}
    hours = {name: (resources.get(name) or 0) * trained / 3600 for name in ("cpu", "gpu")}
    rows = [
        ("wall time of the sweep", wall is not None and show_seconds(wall)),
        ("time of all trials together", show_seconds(trained)),
        ("trials at once, on average", wall and _decimal(trained / wall)),
        ("CPU-hours", resources.get("cpu") and _decimal(hours["cpu"])),
        ("GPU-hours", resources.get("gpu") and _decimal(hours["gpu"])),
        ("environment steps", sweep.steps and show_count(sweep.steps)),
        ("ended early", _early(sweep)),
    ]
    return [(name, str(value)) for name, value in rows if value]


def _early(sweep: SweepData) -> str:
    early = [trial for trial in sweep.trials if trial.record.state in _EARLY]
    if not early:
        return ""
    text = f"{len(early)} of {len(sweep.trials)} trials"
    limit = sweep.record.job.get("max_env_step")
    if not is_number(limit):
        return text
    saved = sweep.seeds * sum(max(0.0, limit - (trial.last_step or 0)) for trial in early)
    return f"{text}, which saved {show_count(saved)} environment steps"


def node_rows(sweep: SweepData) -> Rows:
    """Return what each node did, if more than one is known to have had trials."""
    seconds: dict[str, list[float]] = {}
    for trial in sweep.trials:
        if trial.record.state is not TrialState.PENDING:
            seconds.setdefault(trial.record.node or UNKNOWN_NODE, []).append(trial.seconds)
    if len(seconds.keys() - {UNKNOWN_NODE}) < 2:
        return []
    return [
        (node, f"{count(len(own), 'trial')}, {show_seconds(sum(own))}")
        for node, own in sorted(seconds.items())
    ]


def _decimal(value: float) -> str:
    return f"{value:.2g}" if value < 10 else f"{value:.1f}"


@dataclass(frozen=True)
class Failure:
    """Trials that failed with the same error; the log is that of the first."""

    error: str
    trials: Sequence[TrialData]
    log: Path | None
    lines: Sequence[str]


def failures(sweep: SweepData) -> list[Failure]:
    """Return the failed trials by their error, the most frequent first."""
    groups: dict[str, list[TrialData]] = {}
    for trial in sweep.trials:
        if trial.record.error:
            groups.setdefault(split_error(trial.record)[0], []).append(trial)
    found: list[Failure] = []
    for error, trials in sorted(groups.items(), key=lambda item: -len(item[1])):
        log = split_error(trials[0].record)[1] if len(found) < SHOWN else None
        lines = [_ESCAPES.sub("", line).rstrip() for line in tail(log, LINES)] if log else []
        found.append(Failure(error, trials, log, lines))
    return found


def retried_rows(sweep: SweepData) -> Rows:
    """Return what failed attempts were tried again for, with how many and of which trials."""
    found: dict[str, list[str]] = {}
    for trial in sweep.trials:
        record = trial.record
        for failure in record.failures[:-1] if record.error else record.failures:
            found.setdefault(failure["kind"], []).append(trial.id)
    rows = []
    for kind, trials in sorted(found.items()):
        each = list(dict.fromkeys(trials))
        shown = ", ".join(each[:SHOWN]) + (", ..." if len(each) > SHOWN else "")
        rows.append((kind, f"{count(len(trials), 'attempt')}: {shown}"))
    return rows


def read_provenance(folder: Path) -> dict[str, Any]:
    """Return what was written down about a sweep's origin; nothing if nothing was."""
    try:
        data = json.loads((folder / PROVENANCE_FOLDER / PROVENANCE_FILE).read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return data if isinstance(data, dict) and data.get("version") == VERSION else {}


@dataclass(frozen=True)
class Column:
    """A column of a table of trials; `title` is its full name where `label` is short."""

    label: str
    value: Callable[[TrialData], Any]
    """What a trial has there; None is missing."""
    title: str = ""
    is_number: bool = True
    show: Callable[[Any], str] = show

    def text(self, trial: TrialData) -> str:
        value = self.value(trial)
        return MISSING if value is None else self.show(value)

    def full(self, trial: TrialData) -> str | None:
        """Return the value without loss, empty where the text is all of it; None is missing."""
        value = self.value(trial)
        if value is None:
            return None
        full = f"{value:.1f} s" if self.show is show_seconds else str(value)
        return "" if full == self.show(value) else full


def trial_columns(sweep: SweepData) -> list[Column]:
    """Return the columns of the table of all trials, without those in which all are equal."""
    records = [trial.record for trial in sweep.trials]
    columns = [
        Column(f"best {sweep.record.metric}", lambda trial: trial.score),
        Column("at step", lambda t: t.best_step, "environment steps at the best", show=show_count),
        Column("steps", lambda t: t.last_step, "environment steps in all", show=show_count),
        Column("time", lambda trial: trial.seconds or None, show=show_seconds),
    ]
    if any(record.attempt for record in records):
        columns.append(Column("attempts", lambda trial: trial.record.attempt + 1))
    if any(record.why for record in records):
        columns.append(Column("ended by", lambda trial: trial.record.why, is_number=False))
    if len({record.node for record in records if record.node}) > 1:
        columns.append(Column("node", lambda trial: trial.record.node, is_number=False))
    return [*columns, *_parameter_columns(sweep)]


def pareto_columns(sweep: SweepData) -> list[Column]:
    """Return the columns of the table of the Pareto set; none if there is only one objective."""
    if not sweep.record.more_objectives:
        return []

    def column(place: int, metric: str) -> Column:
        return Column(metric, lambda trial: trial.objectives[place])

    columns = [column(*item) for item in enumerate(o.metric for o in sweep.record.objectives)]
    return [*columns, *_parameter_columns(sweep)]


def _parameter_columns(sweep: SweepData) -> list[Column]:
    drawn = [trial.record.params for trial in sweep.trials]
    labels = short_names(dict.fromkeys(name for params in drawn for name in params))

    def column(name: str, label: str) -> Column:
        is_numeric = all(is_number(params[name]) for params in drawn if name in params)

        def value(trial: TrialData) -> Any:
            value = trial.record.params.get(name)  # one that is None is not missing
            return "None" if value is None and name in trial.record.params else value

        return Column(label, value, name, is_numeric)

    return [column(name, label) for name, label in labels.items()]
