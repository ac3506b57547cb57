"""How a recorded sweep is shown: in a line, in a table, as data."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ditk_ray.cli.output import (
    count_line,
    pareto_view,
    ranked,
    score_line,
    show_value,
    trial_table,
    why_line,
)
from ditk_ray.config.quantities import show_bytes, show_seconds
from ditk_ray.provenance.masking import mask_text
from ditk_ray.tracking.folders import sweep_to_type
from ditk_ray.tracking.record import TrialRecord
from ditk_ray.tracking.recording import Recording
from ditk_ray.tracking.seen_sweep import DEAD, SeenSweep

_STYLES = {"running": "cyan", "finished": "green", "failed": "red", DEAD: "red"}


def headline(seen: SeenSweep) -> Text:
    """Return a sweep in a line or two: how it stands, and its best trial."""
    seconds = seen.seconds
    took = "" if seconds is None else f" {_since(seen)} {show_seconds(seconds)}"
    how = f"{seen.status}{took}{why_line(seen.record)}"
    lines = [f"{seen.record.name}: {how}; {seen.done}/{seen.total} trials done"]
    if seen.status == DEAD:
        name = sweep_to_type(seen.folder)
        lines.append(f"its process is gone (killed?); go on with it: ditk-ray resume {name}")
        lines.append("when it was last heard of:")
    lines.append(count_line(seen.record))
    text = Text("\n".join(lines))
    text.stylize(_STYLES.get(seen.status, "yellow"), 0, len(lines[0]))
    best = seen.record.best()
    if best is not None:
        text.append(f"\nbest: {score_line(seen.record, best)}", style="green")
    return text


def sweep_view(seen: SeenSweep, state: str | None = None, rows: int | None = None) -> Group:
    """Return the headline and the table of the trials, of one state and so many if asked."""
    trials = chosen_trials(seen, state)
    parts: list[RenderableType] = [headline(seen)]
    if trials:
        parts.append(trial_table(seen.record, trials[:rows]))
    elif state:
        parts.append(Text(f"no trial is {state}"))
    if rows is not None and len(trials) > rows:
        parts.append(Text(f"... and {len(trials) - rows} more trials (--all shows them)"))
    if seen.record.more_objectives and state is None:
        parts.append(pareto_view(seen.record))
    return Group(*parts)


def chosen_trials(seen: SeenSweep, state: str | None) -> list[TrialRecord]:
    """Return the trials, the best first, of one state if that is given."""
    return [trial for trial in ranked(seen.record) if state in (None, trial.state)]


def recording_line(seen: SeenSweep, recording: Recording | None) -> str:
    """Say where a sweep is recorded in MLflow, whether all is there, and what to do if not."""
    if recording is None:
        return "not recorded in MLflow"
    name = sweep_to_type(seen.folder)
    where = f"MLflow ({mask_text(recording.uri)}, experiment {recording.experiment})"
    refused = f"; it refused {recording.refused} records" if recording.refused else ""
    if recording.is_complete:
        return f"all of it is in {where}{refused}; look at it with: ditk-ray ui {name}"
    why = f" ({mask_text(recording.error)})" if recording.error else ""
    waiting = f"{show_bytes(recording.pending)} of records wait{why}"
    if seen.is_alive:
        return f"being recorded in {where}{refused}" + (f"; {waiting}" if why else "")
    missing = waiting if recording.pending else "its end is missing"
    return f"not all of it is in {where}{refused}: {missing}; send it with: ditk-ray sync {name}"


def describe_sweep(seen: SeenSweep) -> dict[str, Any]:
    """Return a sweep in a few values."""
    best = seen.record.best()
    return {
        "name": seen.folder.name,
        "folder": str(seen.folder),
        "status": seen.status,
        "is_alive": seen.is_alive,
        "trials_done": seen.done,
        "trials_total": seen.total,
        "metric": seen.record.metric,
        "best_score": best and seen.record.score(best),
        "best_trial": best and best.id,
        "pareto": [trial.id for trial in seen.record.pareto_set()],
        "started": seen.record.started,
        "ended": seen.record.ended,
        "seconds": seen.seconds,
    }


def describe_recording(recording: Recording | None) -> dict[str, Any] | None:
    """Return where a sweep is recorded, as data."""
    if recording is None:
        return None
    values = vars(recording) | {"is_complete": recording.is_complete}
    masked = {key: mask_text(values[key]) for key in ("uri", "error") if values[key]}
    return values | masked


def sweeps_table(sweeps: Sequence[SeenSweep]) -> Table:
    """Return a table with a row for each sweep."""
    table = Table(box=None, pad_edge=False)
    table.add_column("sweep", overflow="fold")
    for heading in ("status", "trials"):
        table.add_column(heading, no_wrap=True)
    for heading in ("best score", "started", "took"):
        table.add_column(heading, justify="right", no_wrap=True)
    for seen in sweeps:
        best = seen.record.best()
        seconds = seen.seconds
        table.add_row(
            Text(seen.folder.name),
            Text(seen.status, style=_STYLES.get(seen.status, "yellow")),
            f"{seen.done}/{seen.total}",
            "-" if best is None else show_value(seen.record.score(best)),
            _local_time(seen.record.started),
            "-" if seconds is None else show_seconds(seconds),
        )
    return table


def _since(seen: SeenSweep) -> str:
    return {"running": "for", DEAD: "after"}.get(seen.status, "in")


def _local_time(time: str) -> str:
    try:
        return f"{datetime.fromisoformat(time).astimezone():%Y-%m-%d %H:%M}"
    except ValueError:
        return "-"
