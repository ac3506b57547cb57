"""Trials that failed, with the end of their logs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ditk_ray.report.data import SweepData, TrialData
from ditk_ray.tracking.logs import split_error, tail

LINES = 20
"""How much of a log is shown."""

SHOWN = 20
"""How many kinds of failures are shown with a log."""

_ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|[\x00-\x08\x0b-\x1f\x7f]")


@dataclass(frozen=True)
class Failure:
    """Trials that failed with the same error; the log is that of the first."""

    error: str
    trials: Sequence[TrialData]
    log: str | None
    lines: Sequence[str]


def failures(sweep: SweepData) -> list[Failure]:
    """Return the failed trials by their error, the most frequent first."""
    groups: dict[str, list[tuple[TrialData, Path | None]]] = {}
    for trial in sweep.trials:
        if trial.record.error:
            error, log = split_error(trial.record)
            groups.setdefault(error, []).append((trial, log))
    ordered = sorted(groups.items(), key=lambda item: -len(item[1]))
    return [_failure(error, found, place < SHOWN) for place, (error, found) in enumerate(ordered)]


def retried_rows(sweep: SweepData) -> list[tuple[str, str]]:
    """Return what failed attempts were tried again for, with how many and of which trials."""
    found: dict[str, list[str]] = {}
    for trial in sweep.trials:
        record = trial.record
        for failure in record.failures[:-1] if record.error else record.failures:
            found.setdefault(failure["kind"], []).append(trial.id)
    return [(kind, _attempts(trials)) for kind, trials in sorted(found.items())]


def _attempts(trials: Sequence[str]) -> str:
    each = list(dict.fromkeys(trials))
    shown = ", ".join(each[:SHOWN]) + (", ..." if len(each) > SHOWN else "")
    return f"{len(trials)} attempt{'s' if len(trials) > 1 else ''}: {shown}"


def _failure(error: str, found: Sequence[tuple[TrialData, Path | None]], has_log: bool) -> Failure:
    log = found[0][1] if has_log else None
    lines = [_ESCAPES.sub("", line).rstrip() for line in tail(log, LINES)] if log else []
    return Failure(error, [trial for trial, _ in found], str(log) if log else None, lines)
