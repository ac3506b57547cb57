"""What the commands print: results to stdout, everything else to stderr."""

from __future__ import annotations

import re
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

if TYPE_CHECKING:
    from ditk_ray.config.job_files import JobEntry
    from ditk_ray.sweep.run import SweepOutcome
    from ditk_ray.sweep.setup import PreparedSweep
    from ditk_ray.tracking.record import SweepRecord, TrialRecord

_LOG = re.compile(r" \[log: (.*)\]$")
_TAIL_LINES = 12
_FAILURES_SHOWN = 3
_ROWS_SHOWN = 20
_PIPE_WIDTH = 160


def console() -> Console:
    """Return where results go."""
    return Console(highlight=False, width=None if sys.stdout.isatty() else _PIPE_WIDTH)


def note(text: str) -> None:
    """Tell the user something that is no result."""
    print(text, file=sys.stderr, flush=True)


def show_value(value: Any) -> str:
    """Write a parameter or metric shortly."""
    if isinstance(value, float):
        return f"{value:.4g}"
    return str(value)


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
        table.add_row(job.name, job.summary, _short(job.file))
    console().print(table)


def print_plan(sweep: PreparedSweep, form: str) -> None:
    """Print what a sweep would do."""
    job = sweep.job
    parameters = {item.name: _show_domain(item.domain) for item in job.space.parameters}
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
    out.print(_trial_table(record))
    _print_best(outcome, out)
    _print_failures(record, out)
    out.print(f"everything is in {_short(outcome.folder)} (sweep.json, a folder for each trial)")


def count_line(record: SweepRecord) -> str:
    """Write how many trials are in each state."""
    counts = record.counts()
    shown = ", ".join(f"{number} {state}" for state, number in sorted(counts.items()))
    number = len(record.trials)
    return f"{number} trial{'s' if number != 1 else ''}: {shown}" if counts else "no trial yet"


def tail(log: Path, lines: int = _TAIL_LINES) -> list[str]:
    """Return the end of a log, read from its end: logs grow large."""
    try:
        with log.open("rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - 16384))
            return file.read().decode(errors="replace").splitlines()[-lines:]
    except OSError:
        return []


def _print_best(outcome: SweepOutcome, out: Console) -> None:
    record = outcome.record
    best = record.best()
    if best is None:
        out.print("no trial got a score", style="red")
        return
    steps = best.best_metrics.get("env_step")
    at = f" at {steps} environment steps" if steps is not None else ""
    out.print(
        f"best: {best.id}, {record.metric} {show_value(record.score(best))}{at}", style="green"
    )
    for name, value in best.params.items():
        out.print(f"    {name} = {show_value(value)}")
    if outcome.best_config:
        out.print(f"run it again: python {_short(outcome.best_config)}")


def _print_failures(record: SweepRecord, out: Console) -> None:
    failed = [trial for trial in record.trials.values() if trial.error]
    for trial in failed[:_FAILURES_SHOWN]:
        error = trial.error or ""
        out.print(f"{trial.id} failed: {_LOG.sub('', error)}", style="red", markup=False)
        log = _LOG.search(error)
        for line in tail(Path(log[1])) if log else []:
            out.print(Text(f"    | {line.rstrip()}"))
        if log:
            out.print(f"    its whole log: {_short(Path(log[1]))}")
    if len(failed) > _FAILURES_SHOWN:
        out.print(f"... and {len(failed) - _FAILURES_SHOWN} more failed trials, see sweep.json")


def _trial_table(record: SweepRecord) -> Table:
    trials = sorted(record.trials.values(), key=lambda trial: _order(record, trial))
    return trial_table(record, trials[:_ROWS_SHOWN])


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
            str(trial.metrics.get("env_step", "-")),
            f"{trial.metrics['time']:.1f}s" if "time" in trial.metrics else "-",
            show_params(trial.params),
        )
    return table


def _order(record: SweepRecord, trial: TrialRecord) -> float:
    score = record.score(trial)
    if score is None:
        return float("inf")
    return -score if record.mode == "max" else score


def _show_domain(domain: Any) -> str:
    from ditk_ray.config.space import is_domain, is_grid

    if not is_domain(domain):
        return f"always {domain!r}"
    if is_grid(domain):
        return f"grid {domain['grid_search']}"
    categories = getattr(domain, "categories", None)
    if categories is not None:
        return f"choice {list(categories)}"
    bounds = getattr(domain, "lower", None), getattr(domain, "upper", None)
    if None not in bounds:
        kind = type(domain).__name__.lower()
        sampler = type(domain.get_sampler()).__name__.strip("_").lower()
        return f"{kind}, {sampler}, {show_value(bounds[0])} to {show_value(bounds[1])}"
    return "a function" if hasattr(domain, "func") else str(domain)


def _short(path: Path) -> str:
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)
