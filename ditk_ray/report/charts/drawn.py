"""Which trials are drawn as points: each is an element of the page, and too many slow it."""

from __future__ import annotations

from typing import Any

from ditk_ray.report.charts.chart import QUIET
from ditk_ray.report.data import SweepData, TrialData
from ditk_ray.report.values import show_count

MAX_POINTS = 2000
"""How many trials a chart draws as points."""

_MANY = 300
HOVER = "%{text}<extra></extra>"


def drawn_trials(sweep: SweepData) -> list[TrialData]:
    """Return the trials with a score, or the best and an even choice of the others."""
    ranked = sweep.ranked
    if len(ranked) <= MAX_POINTS:
        return sweep.scored
    top, rest = ranked[: MAX_POINTS // 4], ranked[MAX_POINTS // 4 :]
    wanted = MAX_POINTS - len(top)
    kept = {trial.index for trial in top}
    kept |= {rest[place * len(rest) // wanted].index for place in range(wanted)}
    return [trial for trial in sweep.scored if trial.index in kept]


def dots(number: int) -> dict[str, Any]:
    """Return how so many points are marked: many are small, and show where they are dense."""
    if number <= _MANY:
        return {"color": QUIET, "size": 6, "opacity": 0.8}
    return {"color": QUIET, "size": 4, "opacity": 0.5}


def notes_on_points(sweep: SweepData) -> str:
    """Say so if not all trials are drawn as points, or not with all their values."""
    notes = []
    total = len(sweep.scored)
    if total > MAX_POINTS:
        notes.append(
            f"{show_count(MAX_POINTS)} of {show_count(total)} trials are drawn as points: "
            "the best, and an even choice of the others."
        )
    if any(trial.record.changes for trial in sweep.trials):
        notes.append("Where a scheduler changed a parameter on the way, its last value counts.")
    return " ".join(notes)
