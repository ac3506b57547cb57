"""`ditk-ray status` and `ditk-ray best`: the progress of a sweep, or of all, and its best trial."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from rich.console import Group
from rich.live import Live
from rich.text import Text

from ditk_ray.cli import views
from ditk_ray.cli.flags import Format, StorageCommand, SweepCommand, format_option
from ditk_ray.cli.output import note, print_items, print_value, short_path, show_value
from ditk_ray.config.options import option, positive
from ditk_ray.errors import BadConfigError, DitkRayError, Problem
from ditk_ray.provenance.secrets import mask_text
from ditk_ray.record.record import SweepRecord, TrialRecord, TrialState, read_record
from ditk_ray.record.sweep_folder import SeenSweep, find_sweep, list_sweeps, look_at
from ditk_ray.record.trial_folder import best_checkpoints
from ditk_ray.tracking.recording import Recording, read_recording
from ditk_ray.trial.reports import CONFIG_FILE, METRICS_FILE
from ditk_ray.util.plain import json_text
from ditk_ray.util.units import show_seconds

_ROOM_FOR_TEXT = 8
"""Lines of the terminal that are not rows of the table."""


def _interval(text: str) -> float:
    if not 0.1 <= float(text) <= 3600:
        raise ValueError("has to be between 0.1 and 3600")
    return float(text)


class Status(StorageCommand):
    """Show the progress or the outcome of a sweep; without SWEEP, list all sweeps.

      ditk-ray status                            all sweeps, the newest first
      ditk-ray status my_sweep
      ditk-ray status my_sweep --watch           until it ends
      ditk-ray status my_sweep --state failed
      ditk-ray status my_sweep --format json

    A sweep is `dead` if its process was killed, or its machine stopped, before it could say so.
    """

    sweep: str | None = option(
        "a sweep's name or folder (default: list all)", None, positional=True
    )
    all: bool = option("show more than the 20 best trials and 3 failures", False)
    state: TrialState | None = option("only trials of this state")
    watch: bool = option("show changes until the sweep ends", False)
    interval: float = option(
        "time between updates with --watch (default: 2)", 2.0, metavar="SECONDS", parse=_interval
    )
    format: Format = format_option()

    def run(self) -> int:
        if self.watch and self.sweep is None:
            hint = "ditk-ray status SWEEP --watch"
            raise BadConfigError(Problem("--watch", "needs a sweep", hint))
        if self.watch and self.format == "json":
            hint = "poll with --format json alone, until `is_alive` is false"
            raise BadConfigError(Problem("--watch", "does not print JSON", hint))
        if self.sweep is None:
            return _print_all(self.storage_path, self.format)
        folder = find_sweep(self.sweep, self.storage_path)
        if self.watch:
            _watch(folder, self.interval, self.state)
        seen = look_at(folder)
        if self.format == "table":
            views.print_sweep(seen, self.state, self.all)
            return 0
        kept = {trial.id for trial in views.chosen_trials(seen, self.state)}
        data = seen.record.as_dict() | _describe(seen)
        data["trials"] = [trial for trial in data["trials"] if trial["id"] in kept]
        data["mlflow"] = _describe_recording(read_recording(folder))
        print_value(data)
        return 0


def _print_all(storage: Path, form: str) -> int:
    sweeps = []
    for folder in list_sweeps(storage):
        try:
            sweeps.append(look_at(folder))
        except BadConfigError as error:
            note(f"left out: {error}")
    if form == "json":
        print_value([_describe(seen) for seen in sweeps])
        return 0
    rows = [_row(seen) for seen in sweeps]
    print_items(rows, ["sweep", "status", "trials", "best_score", "started", "took"], form)
    if not sweeps:
        note(f"no sweep in {storage}; run one with `ditk-ray tune`, or give --storage_path")
    return 0


def _row(seen: SeenSweep) -> dict[str, str | None]:
    best, started = seen.record.best(), seen.record.started
    begun = datetime.fromisoformat(started).astimezone() if started else None
    return {
        "sweep": seen.folder.name,
        "status": seen.status,
        "trials": f"{seen.done}/{seen.total}",
        "best_score": show_value(seen.record.score(best)) if best else None,
        "started": f"{begun:%Y-%m-%d %H:%M}" if begun else None,
        "took": None if seen.seconds is None else show_seconds(seen.seconds),
    }


def _watch(folder: Path, interval: float, state: str | None) -> None:
    out = views.console()
    if out.is_terminal:
        rows = max(3, out.height - _ROOM_FOR_TEXT)
        with Live(console=out, auto_refresh=False, transient=True) as live:
            for seen in _looks(folder, interval):
                parts = views.trials_view(seen, state, rows)
                top = [*views.sweep_headline(seen), views.best_line(seen.record)]
                live.update(Group(*top, *parts), refresh=True)
        return
    last = ""
    for seen in _looks(folder, interval):
        best = seen.record.best()
        line = f"{seen.record.name}: {seen.status}; {views.count_line(seen.record)}"
        line += f"; best: {views.score_line(seen.record, best)}" if best else ""
        if line != last and seen.is_alive:  # at the end the whole status follows
            print(line, flush=True)
        last = line


def _looks(folder: Path, interval: float) -> Iterator[SeenSweep]:
    while (seen := look_at(folder)).is_alive:
        yield seen
        time.sleep(interval)
    yield seen


def _describe(seen: SeenSweep) -> dict[str, Any]:
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


def _describe_recording(recording: Recording | None) -> dict[str, Any] | None:
    if recording is None:
        return None
    values = vars(recording) | {"is_complete": recording.is_complete}
    return values | {key: mask_text(values[key]) for key in ("uri", "error") if values[key]}


class Best(SweepCommand):
    """Show the best trial of a sweep, its parameters and its files, also while the sweep runs.

      ditk-ray best my_sweep
      ditk-ray best my_sweep --top 5
      ditk-ray best my_sweep --format json

    Exit code: 0, or 1 if no trial has a score (yet).
    """

    top: int | None = option("a table of the N best trials", metavar="N", parse=positive)
    format: Format = format_option()

    def run(self) -> int:
        record = read_record(find_sweep(self.sweep, self.storage_path))
        scored = [trial for trial in record.ranked() if record.score(trial) is not None]
        if not scored:
            count = views.count_line(record)
            raise DitkRayError(f"{record.name}: no trial has a score ({record.status}; {count})")
        wanted = scored[: self.top or 1]
        if self.format == "json":
            described = [_describe_trial(record, trial) for trial in wanted]
            print_value(described if self.top else described[0])
        elif self.top:
            views.console().print(views.trial_table(record, wanted))
        else:
            _print_trial(record, wanted[0])
        return 0


def _describe_trial(record: SweepRecord, trial: TrialRecord) -> dict[str, Any]:
    folder = Path(trial.dir)
    config, metrics = (
        path if path.is_file() else None for path in (folder / CONFIG_FILE, folder / METRICS_FILE)
    )
    return {
        "sweep": record.name,
        "metric": record.metric,
        "mode": record.mode,
        "score": record.score(trial),
        "env_step": trial.best_metrics.get("env_step"),
        "objectives": [vars(objective) for objective in record.objectives],
        "pareto": [item.id for item in record.pareto_set()],
        **vars(trial),
        "files": {
            "config": config,
            "metrics": metrics,
            "results": sorted(folder.glob("result*.pkl")),
            "checkpoints": list(best_checkpoints(folder).values()),
        },
        "command": f"python {shlex.quote(short_path(config))}" if config else None,
    }


def _print_trial(record: SweepRecord, trial: TrialRecord) -> None:
    described = _describe_trial(record, trial)
    title = f"{record.name}: {views.score_line(record, trial)} ({trial.state})"
    lines = [f"    {name} = {json_text(value)}" for name, value in trial.params.items()]
    for kind, found in described["files"].items():
        paths = found if isinstance(found, list) else [found] if found else []
        name = kind if kind == "metrics" else kind.removesuffix("s")
        lines += [f"{name:<10}  {short_path(path)}" for path in paths]
    if described["command"]:
        lines.append(f"run it again: {described['command']}")
    out = views.console()
    out.print(Text(title, style="green"))
    for line in lines:
        out.print(Text(line), soft_wrap=True)
    if record.more_objectives:
        out.print(views.pareto_view(record))
