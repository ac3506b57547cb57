"""`ditk-ray pause`, `continue`, `cancel` and `priority`: act on a sweep that runs."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from ditk_ray.cli.sweep_arguments import add_format, add_sweep
from ditk_ray.errors import BadConfigError, DitkRayError, Problem

if TYPE_CHECKING:
    from ditk_ray.tracking.requests import Answer
    from ditk_ray.tracking.seen_sweep import SeenSweep

_EXAMPLES = """\
examples:
  ditk-ray pause my_sweep 3                 trial_00003 pauses at its next evaluation
  ditk-ray continue my_sweep 3              and goes on from there
  ditk-ray priority my_sweep 3 10           it takes the place of one that ranks lower
  ditk-ray cancel my_sweep 3                it is stopped for good
  ditk-ray cancel my_sweep                  the whole sweep stops; `ditk-ray resume` goes on

They work from any terminal or host that sees the sweep's folder.
"""


def add_commands(commands: Any) -> None:
    """Add all four to the parser's commands."""
    for name, text in (
        ("pause", "pause a trial of a running sweep"),
        ("continue", "let a paused trial go on"),
        ("cancel", "stop a trial of a running sweep for good, or the whole sweep"),
        ("priority", "rank a trial of a running sweep"),
    ):
        parser = commands.add_parser(
            name, help=text, description=f"{text.capitalize()}.", epilog=_EXAMPLES
        )
        parser.set_defaults(run=run, action=name)
        add_sweep(parser)
        whole = name == "cancel"
        parser.add_argument(
            "trial",
            metavar="TRIAL",
            nargs="?" if whole else None,
            help="its name or number" + (" (default: the whole sweep)" if whole else ""),
        )
        if name == "priority":
            parser.add_argument("rank", metavar="N", type=int, help="higher goes first; 0 is usual")
        if name == "continue":
            parser.add_argument("--priority", metavar="N", type=int, dest="rank", help="rank it")
        add_format(parser)


def run(given: argparse.Namespace) -> int:
    """Ask the sweep, and print what it says."""
    from ditk_ray.tracking.folders import find_sweep, find_trial
    from ditk_ray.tracking.requests import Action, Request, ask
    from ditk_ray.tracking.seen_sweep import look_at

    seen = look_at(find_sweep(given.sweep, given.storage_path))
    trial = find_trial(seen.record, given.trial).id if given.trial is not None else None
    _require_running(seen)
    request = Request(Action(given.action), trial, getattr(given, "rank", None))
    answer = ask(seen.folder, request)
    if not answer.is_done:
        raise DitkRayError(answer.message)
    _print(seen, answer, given)
    return 0


def _require_running(seen: SeenSweep) -> None:
    from ditk_ray.tracking.folders import sweep_to_type

    if not seen.is_running:
        name = sweep_to_type(seen.folder)
        is_over = seen.status == "finished"
        hint = "" if is_over else f"go on with it first: ditk-ray resume {name}"
        what = f"does not run ({seen.status})"
        raise BadConfigError(Problem(f"SWEEP {seen.folder.name}", what, hint))


def _print(seen: SeenSweep, answer: Answer, given: argparse.Namespace) -> None:
    from ditk_ray.config.jsonable import json_text
    from ditk_ray.tracking.folders import sweep_to_type

    if given.format == "json":
        print(json_text(vars(answer), indent=1))
        return
    print(answer.message)
    if given.trial is None:
        print(f"go on later with: ditk-ray resume {sweep_to_type(seen.folder)}")
