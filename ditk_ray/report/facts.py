"""Figures about a sweep, each with its name."""

from __future__ import annotations

from ditk_ray.config.quantities import show_seconds
from ditk_ray.report.data import SweepData
from ditk_ray.report.usage import Usage
from ditk_ray.report.values import show, show_count
from ditk_ray.tracking.record import TrialState

Rows = list[tuple[str, str]]

_STATES = (
    TrialState.SUCCEEDED,
    TrialState.STOPPED,
    TrialState.PRUNED,
    TrialState.FAILED,
    TrialState.RUNNING,
    TrialState.PAUSED,
    TrialState.PENDING,
)


def facts(sweep: SweepData, usage: Usage) -> Rows:
    """Return the few figures that stand at the top."""
    rows = [("trials", show_count(len(sweep.trials)))]
    counts = sweep.record.counts()
    rows += [(state, show_count(counts[state])) for state in _STATES if counts[state]]
    if sweep.best is not None and sweep.best.score is not None:
        rows.append((f"best {sweep.record.metric}", show(sweep.best.score)))
    if usage.wall_seconds is not None:
        rows.append(("wall time", show_seconds(usage.wall_seconds)))
    if usage.steps:
        rows.append(("environment steps", show_count(usage.steps)))
    return rows


def usage_rows(sweep: SweepData, usage: Usage) -> Rows:
    """Return time and resources; what is not known is left out."""
    rows: list[tuple[str, str | None]] = [
        ("wall time of the sweep", _seconds(usage.wall_seconds)),
        ("time of all trials together", _seconds(usage.trial_seconds)),
        ("trials at once, in the mean", _decimal(usage.at_once)),
        ("CPU-hours", _decimal(usage.cpu_hours)),
        ("GPU-hours", _decimal(usage.gpu_hours)),
        ("environment steps", show_count(usage.steps) if usage.steps else None),
        ("ended early", _early(sweep, usage)),
    ]
    return [(name, value) for name, value in rows if value is not None]


def _early(sweep: SweepData, usage: Usage) -> str | None:
    if not usage.early:
        return None
    text = f"{usage.early} of {len(sweep.trials)} trials"
    if usage.steps_saved is None:
        return text
    return f"{text}, which saved {show_count(usage.steps_saved)} environment steps"


def _seconds(value: float | None) -> str | None:
    return None if value is None else show_seconds(value)


def _decimal(value: float | None) -> str | None:
    return None if value is None else f"{value:.2g}" if value < 10 else f"{value:.1f}"
