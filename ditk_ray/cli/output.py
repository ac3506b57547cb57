"""What the commands print: results to stdout, everything else to stderr."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ditk_ray.config.entries import entry_name
from ditk_ray.config.jsonable import json_text
from ditk_ray.config.quantities import show_seconds
from ditk_ray.provenance.masking import mask_text
from ditk_ray.tracking.artifacts import REPORT_FILE
from ditk_ray.tracking.folders import sweep_to_type
from ditk_ray.tracking.logs import split_error, tail
from ditk_ray.tracking.recording import read_recording

if TYPE_CHECKING:
    from ditk_ray.config.job_files import JobEntry
    from ditk_ray.sweep.run import SweepOutcome
    from ditk_ray.sweep.setup import PreparedSweep
    from ditk_ray.tracking.record import SweepRecord, TrialRecord

FAILURES_SHOWN = 3
ROWS_SHOWN = 20
_PIPE_WIDTH = 160


class _Output(Console):
    def on_broken_pipe(self) -> None:
        """Leave it to the command line what becomes of a reader who has enough."""
        raise BrokenPipeError


def console() -> Console:
    """Return where results go."""
    return _Output(highlight=False, width=None if sys.stdout.isatty() else _PIPE_WIDTH)


def note(text: str) -> None:
    """Tell the user something that is no result."""
    print(text, file=sys.stderr, flush=True)


def show_value(value: Any) -> str:
    """Write a parameter or metric shortly."""
    if isinstance(value, float):
        return f"{value:.4g}"
    return str(value)


def show_steps(metrics: Mapping[str, Any]) -> str:
    """Write the environment steps of a report; the mean over several seeds is a float."""
    steps = metrics.get("env_step")
    return f"{steps:.0f}" if isinstance(steps, (int, float)) else "-"


def show_params(params: Mapping[str, Any]) -> str:
    """Write parameters in one line, each by the last part of its path."""
    return " ".join(f"{name.rpartition('.')[2]}={show_value(v)}" for name, v in params.items())


def print_jobs(jobs: Sequence[JobEntry], form: str) -> None:
    """Print the jobs that can be run."""
    if form == "json":
        rows = [{"name": j.name, "file": str(j.file), "summary": j.summary} for j in jobs]
        print(json_text(rows, indent=1))
        return
    table = Table(box=None, pad_edge=False)
    for heading in ("class", "what it does", "file"):
        table.add_column(heading)
    for job in jobs:
        table.add_row(job.name, job.summary, short_path(job.file))
    console().print(table)


def print_plan(sweep: PreparedSweep, form: str) -> None:
    """Print what a sweep would do."""
    from ditk_ray.config.parameter_text import show_description
    from ditk_ray.config.space_description import describe_space

    job = sweep.job
    parameters = {name: show_description(item) for name, item in describe_space(job.space).items()}
    plan = {
        "name": sweep.name,
        "job": job.name,
        "entry": entry_name(job.entry),
        "metric": job.metric,
        "mode": job.mode,
        "trials": sweep.trial_count,
        "seeds_per_trial": len(job.seeds),
        "at_once": sweep.concurrency,
        "resources_per_trial": str(sweep.resources),
        "nodes": [str(node) for node in sweep.nodes],
        "fits": True,
        "folder": str(sweep.folder),
        "space": parameters,
    }
    if form == "json":
        print(json_text(plan, indent=1))
        return
    out = console()
    out.print(f"{job.name}: {plan['entry']}, {job.mode} {job.metric}", style="bold")
    waves = -(-sweep.trial_count // sweep.concurrency)
    out.print(
        f"{sweep.trial_count} trials, {sweep.concurrency} at once (in {waves} rounds), "
        f"each with {sweep.resources}"
        + (f", which {len(job.seeds)} seeds share" if len(job.seeds) > 1 else "")
    )
    for node in sweep.nodes:
        out.print(f"  {node}: holds {node.holds(sweep.resources)} at once")
    table = Table(box=None, pad_edge=False)
    table.add_column("parameter")
    table.add_column("drawn from")
    for name, domain in parameters.items():
        table.add_row(name, domain)
    out.print(table if parameters else "nothing varies: the space is empty")
    out.print(f"results would go to {sweep.folder}; nothing was started")


def print_summary(outcome: SweepOutcome, form: str) -> None:
    """Print how a sweep ended."""
    record = outcome.record
    if form == "json":
        print(json_text(record.as_dict(), indent=1))
        return
    out = console()
    out.print()
    took = show_seconds(outcome.seconds)
    out.print(f"{record.name}: {record.status} in {took}; {count_line(record)}", style="bold")
    out.print(trial_table(record, ranked(record)[:ROWS_SHOWN]))
    _print_best(outcome, out)
    print_failures(record, out)
    _print_views(outcome.folder, out)
    out.print(
        f"everything is in {short_path(outcome.folder)} (sweep.json, a folder for each trial)"
    )


def _print_views(folder: Path, out: Console) -> None:
    """Print how to look at a sweep."""
    report, recording = folder / REPORT_FILE, read_recording(folder)
    if report.is_file():
        out.print(f"look at it: {short_path(report)}")
    if recording is not None and recording.is_on_server:
        out.print(f"in MLflow: {mask_text(recording.page(recording.uri))}")
    elif recording is not None:
        out.print(f"in MLflow: ditk-ray ui {sweep_to_type(folder)}")


def count_line(record: SweepRecord) -> str:
    """Write how many trials are in each state."""
    counts = record.counts()
    shown = ", ".join(f"{number} {state}" for state, number in sorted(counts.items()))
    number = len(record.trials)
    return f"{number} trial{'s' if number != 1 else ''}: {shown}" if counts else "no trial yet"


def _print_best(outcome: SweepOutcome, out: Console) -> None:
    record = outcome.record
    best = record.best()
    if best is None:
        out.print("no trial got a score", style="red")
        return
    out.print(Text(f"best: {score_line(record, best)}", style="green"))
    for name, value in best.params.items():
        out.print(f"    {name} = {show_value(value)}")
    if outcome.best_config:
        out.print(f"run it again: python {short_path(outcome.best_config)}")


def score_line(record: SweepRecord, trial: TrialRecord) -> str:
    """Write a trial's score, and after how many steps it had it."""
    has_steps = trial.best_metrics.get("env_step") is not None
    at = f" at {show_steps(trial.best_metrics)} environment steps" if has_steps else ""
    return f"{trial.id}, {record.metric} {show_value(record.score(trial))}{at}"


def print_failures(record: SweepRecord, out: Console, limit: int | None = FAILURES_SHOWN) -> None:
    """Print why trials failed, with the end of their logs."""
    failed = [trial for trial in record.trials.values() if trial.error]
    for trial in failed[:limit]:
        error, log = split_error(trial)
        out.print(f"{trial.id} failed: {error}", style="red", markup=False)
        for line in tail(log) if log else []:
            out.print(Text(f"    | {line.rstrip()}"))
        if log:
            out.print(f"    its whole log: {short_path(log)}")
    if limit is not None and len(failed) > limit:
        out.print(f"... and {len(failed) - limit} more failed trials, see sweep.json")


def ranked(record: SweepRecord) -> list[TrialRecord]:
    """Return all trials, the best first and those without a score last."""
    return sorted(record.trials.values(), key=lambda trial: _order(record, trial))


def trial_table(record: SweepRecord, trials: Sequence[TrialRecord]) -> Table:
    """Return a table with a row for each of the trials."""
    table = Table(box=None, pad_edge=False)
    # Where the terminal is narrow, the parameters are cut and nothing else.
    table.add_column("trial", no_wrap=True, min_width=11)
    table.add_column("state", no_wrap=True, min_width=9)
    for heading in (f"best {record.metric}", "env_step", "time"):
        table.add_column(heading, justify="right", no_wrap=True, min_width=max(7, len(heading)))
    table.add_column("parameters", overflow="ellipsis", no_wrap=True)
    for trial in trials:
        score = record.score(trial)
        table.add_row(
            trial.id,
            trial.state,
            "-" if score is None else show_value(score),
            show_steps(trial.metrics),
            f"{trial.metrics['time']:.1f}s" if "time" in trial.metrics else "-",
            Text(show_params(trial.params)),  # brackets in a value are no markup
        )
    return table


def _order(record: SweepRecord, trial: TrialRecord) -> tuple[float, float]:
    score = record.score(trial)
    if score is None:
        return float("inf"), 0.0
    # Of equals, the one with fewest steps: as the record's own best trial.
    return -score if record.mode == "max" else score, trial.best_metrics.get("env_step") or 0


def short_path(path: Path) -> str:
    """Write a path relative to the working directory where it is below it."""
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)
