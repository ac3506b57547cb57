"""What the commands print: results to stdout, everything else to stderr."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from ditk_ray.config.entries import entry_name
from ditk_ray.config.jsonable import json_text
from ditk_ray.config.objectives import show_objectives
from ditk_ray.config.quantities import show_seconds
from ditk_ray.provenance.masking import mask_text
from ditk_ray.tracking.artifacts import REPORT_FILE
from ditk_ray.tracking.folders import sweep_to_type
from ditk_ray.tracking.logs import split_error, tail
from ditk_ray.tracking.recording import read_recording

if TYPE_CHECKING:
    from ditk_ray.config.job_files import JobEntry
    from ditk_ray.kube.manifests import JobManifests
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
    from ditk_ray.sweep.description import describe_job

    job, described = sweep.job, describe_job(sweep)
    parameters = {name: show_description(item) for name, item in describe_space(job.space).items()}
    plan = {
        "name": sweep.name,
        "job": job.name,
        "entry": entry_name(job.entry),
        "metric": job.metric,
        "mode": job.mode,
        "objectives": [vars(objective) for objective in job.objectives],
        "trials": sweep.trial_count,
        "seeds_per_trial": len(job.seeds),
        "at_once": sweep.concurrency,
        "backend": job.backend,
        "resources_per_trial": str(sweep.resources),
        "nodes": [str(node) for node in sweep.nodes],
        "fits": True,
        "searcher": described["searcher"]["name"],
        "scheduler": described["scheduler"]["name"],
        "folder": str(sweep.folder),
        "space": parameters,
    }
    first = _first_jobs(sweep)
    if sweep.dijob:
        plan["namespace"] = sweep.dijob.namespace
        plan["first_jobs"] = [[made.dijob, made.config_map] for made in first]
    if form == "json":
        print(json_text(plan, indent=1))
        return
    out = console()
    out.print(f"{job.name}: {plan['entry']}, {show_objectives(job.objectives)}", style="bold")
    waves = -(-sweep.trial_count // sweep.concurrency)
    rounds = f"{sweep.trial_count} trials, {sweep.concurrency} at once (in {waves} rounds), "
    out.print(rounds + _where_trials_run(sweep))
    out.print(f"searcher {plan['searcher']}, scheduler {plan['scheduler']}")
    for node in sweep.nodes if not sweep.dijob else ():
        out.print(f"  {node}: holds {node.holds(sweep.resources)} at once")
    table = Table(box=None, pad_edge=False)
    table.add_column("parameter")
    table.add_column("drawn from")
    for name, domain in parameters.items():
        table.add_row(name, domain)
    out.print(table if parameters else "nothing varies: the space is empty")
    for made in first:
        print(f"---\n{made.as_yaml()}", end="")
    out.print(f"results would go to {sweep.folder}; nothing was started")


def _first_jobs(sweep: PreparedSweep) -> list[JobManifests]:
    from ditk_ray.sweep.dijob_setup import draw_first, first_jobs

    return first_jobs(sweep.trial_plan(), draw_first(sweep)) if sweep.dijob else []


def _where_trials_run(sweep: PreparedSweep) -> str:
    seeds = len(sweep.job.seeds)
    if sweep.dijob:
        jobs = f"{seeds} DIJobs" if seeds > 1 else "a DIJob"
        return f"each {jobs} in the namespace {sweep.dijob.namespace}"
    shared = f", which {seeds} seeds share" if seeds > 1 else ""
    return f"each with {sweep.resources}{shared}"


def print_summary(outcome: SweepOutcome, form: str) -> None:
    """Print how a sweep ended."""
    record = outcome.record
    if form == "json":
        print(json_text(record.as_dict(), indent=1))
        return
    out = console()
    out.print()
    took = show_seconds(outcome.seconds)
    title = f"{record.name}: {record.status} in {took}{why_line(record)}; {count_line(record)}"
    out.print(Text(title, style="bold"))
    out.print(trial_table(record, ranked(record)[:ROWS_SHOWN]))
    _print_best(outcome, out)
    print_failures(record, out)
    _print_views(outcome.folder, out)
    if record.status != "finished":
        out.print(f"go on with it: ditk-ray resume {sweep_to_type(outcome.folder)}")
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


def why_line(record: SweepRecord) -> str:
    """Write what ended a sweep before its trials were done, if something did."""
    return f" (ended by {record.why})" if record.why else ""


def _print_best(outcome: SweepOutcome, out: Console) -> None:
    record = outcome.record
    best = record.best()
    if best is None:
        out.print("no trial got a score", style="red")
        return
    if record.more_objectives:
        out.print(pareto_view(record))
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
        out.print(f"{trial.id} failed{show_attempts(trial)}: {error}", style="red", markup=False)
        for line in tail(log) if log else []:
            out.print(Text(f"    | {line.rstrip()}"))
        if log:
            out.print(f"    its whole log: {short_path(log)}")
    if limit is not None and len(failed) > limit:
        out.print(f"... and {len(failed) - limit} more failed trials, see sweep.json")


def ranked(record: SweepRecord) -> list[TrialRecord]:
    """Return all trials, the best first and those without a score last."""
    return sorted(record.trials.values(), key=lambda trial: _order(record, trial))


def pareto_view(record: SweepRecord) -> Group:
    """Return the trials that none beats in every objective, with their values."""
    trials = record.pareto_set()
    title = f"Pareto set ({show_objectives(record.objectives)}): "
    title += f"{len(trials)} of {len(record.trials)} trials"
    table = Table(box=None, pad_edge=False, expand=True)
    table.add_column("trial", no_wrap=True, min_width=11)
    for objective in record.objectives:
        table.add_column(objective.metric, justify="right", no_wrap=True)
    table.add_column("parameters", overflow="ellipsis", no_wrap=True, ratio=1)
    for trial in trials[:ROWS_SHOWN]:
        values = [show_value(trial.best_metrics[item.metric]) for item in record.objectives]
        table.add_row(trial.id, *values, Text(show_params(trial.params)))
    more = len(trials) - ROWS_SHOWN
    rest = [Text(f"... and {more} more, see sweep.json")] if more > 0 else []
    return Group(Text(title), table, *rest)


def trial_table(record: SweepRecord, trials: Sequence[TrialRecord]) -> Table:
    """Return a table with a row for each of the trials."""
    table = Table(box=None, pad_edge=False, expand=True)
    # Where the terminal is narrow, the parameters are cut and nothing else.
    table.add_column("trial", no_wrap=True, min_width=11)
    table.add_column("state", no_wrap=True, min_width=9)
    for heading in (f"best {record.metric}", "env_step", "time"):
        table.add_column(heading, justify="right", no_wrap=True, min_width=max(7, len(heading)))
    table.add_column("parameters", overflow="ellipsis", no_wrap=True, ratio=1)
    for trial in trials:
        score = record.score(trial)
        table.add_row(
            trial.id,
            show_state(trial),
            "-" if score is None else show_value(score),
            show_steps(trial.metrics),
            f"{trial.metrics['time']:.1f}s" if "time" in trial.metrics else "-",
            # Brackets in a value are no markup.
            Text(f"{f'ended by {trial.why}; ' if trial.why else ''}{show_params(trial.params)}"),
        )
    return table


def show_state(trial: TrialRecord) -> str:
    """Write a trial's state, and what it went through before."""
    by_hand = " by hand" if trial.is_held and trial.state == "paused" else ""
    return f"{trial.state}{by_hand}{show_attempts(trial)}"


def show_attempts(trial: TrialRecord) -> str:
    """Write which attempts failed before the last one, such as ` (after lost, 2 stall)`."""
    before = trial.failures[:-1] if trial.error else trial.failures
    counts = Counter(failure["kind"] for failure in before)
    shown = ", ".join(
        kind if number == 1 else f"{number} {kind}" for kind, number in counts.items()
    )
    return f" (after {shown})" if shown else ""


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
