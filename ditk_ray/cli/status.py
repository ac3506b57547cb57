"""`ditk-ray status`: how a sweep stands, or all of them."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ditk_ray.cli.sweep_arguments import add_format, add_sweep
from ditk_ray.errors import BadConfigError, Problem
from ditk_ray.tracking.record import TrialState

if TYPE_CHECKING:
    from ditk_ray.tracking.seen_sweep import SeenSweep

_EXAMPLES = """\
examples:
  ditk-ray status                            all sweeps, the newest first
  ditk-ray status my_sweep
  ditk-ray status my_sweep --watch           until it ends
  ditk-ray status my_sweep --state failed
  ditk-ray status my_sweep --format json

A sweep whose process is gone without a word (killed, or the machine stopped) is `dead`.
"""


def add_command(commands: Any) -> None:
    """Add `status` to the parser's commands."""
    parser = commands.add_parser(
        "status",
        help="show how a sweep stands, or all sweeps",
        description="Show how a sweep stands, while it runs or later; without SWEEP, "
        "list all sweeps.",
        epilog=_EXAMPLES,
    )
    parser.set_defaults(run=run)
    add_sweep(parser, is_optional=True, more=" (default: list all)")
    parser.add_argument(
        "--all", action="store_true", help="show more than the 20 best trials and 3 failures"
    )
    parser.add_argument(
        "--state", choices=[str(state) for state in TrialState], help="only trials of this state"
    )
    parser.add_argument("--watch", action="store_true", help="go on until the sweep ends")
    parser.add_argument(
        "--interval",
        metavar="SECONDS",
        type=_seconds,
        default=2.0,
        help="how often --watch looks (default: %(default)g)",
    )
    add_format(parser)


def run(given: argparse.Namespace) -> int:
    """Print what the arguments ask for and return the exit code."""
    _check(given)
    if given.sweep is None:
        _print_all(given.storage_path, given.format)
        return 0
    from ditk_ray.tracking.folders import find_sweep
    from ditk_ray.tracking.seen_sweep import look_at

    folder = find_sweep(given.sweep, given.storage_path)
    if given.watch:
        from ditk_ray.cli.watch import watch

        watch(folder, given.interval, given.state)
    seen = look_at(folder)
    if given.format == "json":
        _print_json(seen, given.state)
    else:
        _print(seen, given.state, given.all)
    return 0


def _check(given: argparse.Namespace) -> None:
    if given.watch and given.sweep is None:
        raise BadConfigError(Problem("--watch", "needs a sweep", "ditk-ray status SWEEP --watch"))
    if given.watch and given.format == "json":
        hint = "ask again and again with --format json alone; `is_alive` says when to end"
        raise BadConfigError(Problem("--watch", "is for people, and prints no JSON", hint))


def _print(seen: SeenSweep, state: str | None, is_whole: bool) -> None:
    from rich.text import Text

    from ditk_ray.cli.output import (
        FAILURES_SHOWN,
        ROWS_SHOWN,
        console,
        print_failures,
        short_path,
    )
    from ditk_ray.cli.sweep_view import recording_line, sweep_view
    from ditk_ray.tracking.recording import read_recording

    out = console()
    out.print(sweep_view(seen, state, None if is_whole else ROWS_SHOWN))
    if state in (None, TrialState.FAILED):
        print_failures(seen.record, out, None if is_whole else FAILURES_SHOWN)
    out.print(Text(recording_line(seen, read_recording(seen.folder))), soft_wrap=True)
    out.print(Text(f"everything is in {short_path(seen.folder)}"), soft_wrap=True)


def _print_json(seen: SeenSweep, state: str | None) -> None:
    from ditk_ray.cli.sweep_view import chosen_trials, describe_recording, describe_sweep
    from ditk_ray.config.jsonable import json_text
    from ditk_ray.tracking.recording import read_recording

    kept = {trial.id for trial in chosen_trials(seen, state)}
    data = seen.record.as_dict()
    data["trials"] = [trial for trial in data["trials"] if trial["id"] in kept]
    data["mlflow"] = describe_recording(read_recording(seen.folder))
    print(json_text(data | describe_sweep(seen), indent=1))


def _print_all(storage: Path, form: str) -> None:
    from ditk_ray.cli.output import console, note
    from ditk_ray.cli.sweep_view import describe_sweep, sweeps_table
    from ditk_ray.config.jsonable import json_text
    from ditk_ray.tracking.folders import list_sweeps
    from ditk_ray.tracking.seen_sweep import look_at

    sweeps = []
    for folder in list_sweeps(storage):
        try:
            sweeps.append(look_at(folder))
        except BadConfigError as error:
            note(f"left out: {error}")
    if form == "json":
        print(json_text([describe_sweep(seen) for seen in sweeps], indent=1))
    elif sweeps:
        console().print(sweeps_table(sweeps))
    else:
        note(f"no sweep in {storage}; run one with `ditk-ray tune`, or give --storage_path")


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0.1 <= seconds <= 3600:
        raise argparse.ArgumentTypeError("has to be from 0.1 to 3600")
    return seconds
