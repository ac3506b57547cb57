"""Watching a sweep from outside until it ends."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from rich.live import Live

from ditk_ray.cli.output import console, score_line
from ditk_ray.cli.sweep_view import headline, sweep_view
from ditk_ray.tracking.seen_sweep import SeenSweep, look_at

_ROOM_FOR_TEXT = 8
"""Lines of the terminal that are not rows of the table."""


def watch(folder: Path, interval: float, state: str | None = None) -> None:
    """Show a sweep until it ends: a live table on a terminal, else a line for each change."""
    out = console()
    if out.is_terminal:
        rows = max(3, out.height - _ROOM_FOR_TEXT)
        with Live(console=out, auto_refresh=False, transient=True) as live:
            for seen in _looks(folder, interval):
                live.update(sweep_view(seen, state, rows), refresh=True)
        return
    earlier = None
    for seen in _looks(folder, interval):
        for line in _changes(earlier, seen):
            print(line, flush=True)
        earlier = seen


def _looks(folder: Path, interval: float) -> Iterator[SeenSweep]:
    """Yield how the sweep stands now and then, and at last when its process has ended."""
    while (seen := look_at(folder)).is_alive:
        yield seen
        time.sleep(interval)
    yield seen


def _changes(earlier: SeenSweep | None, seen: SeenSweep) -> Iterator[str]:
    """Yield what is new since an earlier look."""
    if earlier is None:
        if seen.is_alive:  # else the whole status follows anyway
            yield headline(seen).plain
        return
    for trial in seen.record.trials.values():
        known = earlier.record.trials.get(trial.id)
        if known is None or known.state is not trial.state:
            why = f": {trial.error}" if trial.error else ""
            yield f"{trial.id} {trial.state}{why} ({seen.done}/{seen.total} done)"
    best, known_best = seen.record.best(), earlier.record.best()
    if best is None:
        return
    score = seen.record.score(best)
    if known_best is None or score != earlier.record.score(known_best):
        yield f"best: {score_line(seen.record, best)}"
