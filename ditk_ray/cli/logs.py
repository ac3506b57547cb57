"""`ditk-ray logs`: what a trial has printed, also while it runs."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ditk_ray.cli.sweep_arguments import add_sweep, positive
from ditk_ray.errors import BadConfigError, DitkRayError, Problem

if TYPE_CHECKING:
    from ditk_ray.cli.log_printer import LogPrinter
    from ditk_ray.tracking.log_reading import TrialLogs
    from ditk_ray.tracking.record import SweepRecord, TrialRecord

_EXAMPLES = """\
examples:
  ditk-ray logs my_sweep trial_00003
  ditk-ray logs my_sweep 3 --follow          until the trial ends
  ditk-ray logs my_sweep best --tail 20
  ditk-ray logs my_sweep 3 --attempt 0 --seed 1

Of a trial that ran several times, the last attempt is shown.
"""

_POLL_SECONDS = 0.5


def add_command(commands: Any) -> None:
    """Add `logs` to the parser's commands."""
    parser = commands.add_parser(
        "logs",
        help="show a trial's log",
        description="Show what a trial has printed.",
        epilog=_EXAMPLES,
    )
    parser.set_defaults(run=run)
    add_sweep(parser)
    parser.add_argument("trial", metavar="TRIAL", help="trial_00003, or 3, or best")
    parser.add_argument(
        "--follow", action="store_true", help="wait for the log, and go on until the trial ends"
    )
    parser.add_argument("--attempt", metavar="N", type=int, help="another than the last")
    parser.add_argument("--seed", metavar="N", type=int, help="only this seed's log")
    parser.add_argument("--tail", metavar="N", type=positive, help="only the last N lines")


def run(given: argparse.Namespace) -> int:
    """Print the log and return the exit code."""
    from ditk_ray.tracking.folders import find_sweep
    from ditk_ray.tracking.log_reading import TrialLogs
    from ditk_ray.tracking.seen_sweep import look_at

    folder = find_sweep(given.sweep, given.storage_path)
    record = look_at(folder).record
    seed = _seed_name(record, given.seed)
    trial = _find_or_await(folder, given.trial, given.follow)
    logs = TrialLogs(folder / trial.id, given.attempt, seed, given.tail)
    printer = _printer(record, seed, given.follow)
    if given.follow:
        _follow(folder, trial, logs, printer)
    else:
        _check_attempt(trial, given.attempt)
        _show_new(logs, printer)
    printer.close()
    if printer.is_empty:
        raise DitkRayError(f"{trial.id} has printed nothing")
    return 0


def _follow(folder: Path, trial: TrialRecord, logs: TrialLogs, printer: LogPrinter) -> None:
    """Print the logs as they grow, until the trial is over."""
    from ditk_ray.cli.output import note

    is_waiting = False
    while True:
        is_over = _is_over(folder, trial.id)  # asked first: what it wrote before is then read
        _show_new(logs, printer)
        if is_over:
            return
        if printer.is_empty and not is_waiting:
            note(f"waiting for {trial.id}, which is {trial.state}")
            is_waiting = True
        time.sleep(_POLL_SECONDS)


def _show_new(logs: TrialLogs, printer: LogPrinter) -> None:
    for piece in logs.read():
        printer.show(piece)
    printer.flush()


def _is_over(folder: Path, trial: str) -> bool:
    """Say whether a trial will not write any more."""
    from ditk_ray.tracking.seen_sweep import look_at

    seen = look_at(folder)
    return not seen.is_running or seen.record.trials[trial].state.is_final


def _find_or_await(folder: Path, given: str, is_patient: bool) -> TrialRecord:
    """Return the trial; a running sweep may still have to make it."""
    from ditk_ray.cli.output import note
    from ditk_ray.tracking.folders import find_trial
    from ditk_ray.tracking.seen_sweep import look_at

    is_waiting = False
    while True:
        seen = look_at(folder)
        number = given.removeprefix("trial_")
        may_come = given == "best" or (number.isdecimal() and int(number) < seen.total)
        try:
            return find_trial(seen.record, given)
        except BadConfigError:
            if not (is_patient and seen.is_running and may_come):
                raise
        if not is_waiting:
            note(f"waiting for {given}")
            is_waiting = True
        time.sleep(_POLL_SECONDS)


def _printer(record: SweepRecord, seed: str | None, is_following: bool) -> LogPrinter:
    from ditk_ray.cli.log_printer import LogPrinter, SeedPrinter

    is_lone = seed is not None or len(record.job.get("seeds", [])) < 2
    return SeedPrinter() if is_following and not is_lone else LogPrinter(is_lone)


def _seed_name(record: SweepRecord, seed: int | None) -> str | None:
    """Return how the seed's folder is called; a single seed has no folder of its own."""
    if seed is None:
        return None
    seeds = record.job.get("seeds", [seed])
    if seed not in seeds:
        known = ", ".join(str(item) for item in seeds)
        what = f"no trial of {record.name} has it"
        raise BadConfigError(Problem(f"--seed {seed}", what, f"there are {known}"))
    return f"seed_{seed}" if len(seeds) > 1 else ""


def _check_attempt(trial: TrialRecord, attempt: int | None) -> None:
    from ditk_ray.tracking.trial_files import attempts

    known = attempts(Path(trial.dir))
    if attempt is not None and attempt not in known:
        hint = f"there are {', '.join(str(number) for number in known)}" if known else ""
        what = f"{trial.id} has no such attempt"
        raise BadConfigError(Problem(f"--attempt {attempt}", what, hint))
