"""`ditk-ray replay`: run a recorded trial again and compare."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ditk_ray.cli.sweep_arguments import add_format, add_sweep

if TYPE_CHECKING:
    from ditk_ray.sweep.replay import Replay
    from ditk_ray.tracking.record import TrialRecord

_EXAMPLES = """\
examples:
  ditk-ray replay my_sweep                  the best trial
  ditk-ray replay my_sweep trial_00003

Exit code: 0 if every evaluation came out the same, 1 if not.
"""


def add_command(commands: Any) -> None:
    """Add `replay` to the parser's commands."""
    parser = commands.add_parser(
        "replay",
        help="run a trial again and compare its score",
        description="Run one trial again from its recorded config and seeds, for as many "
        "evaluations as were recorded, and say whether they agree.",
        epilog=_EXAMPLES,
    )
    parser.set_defaults(run=run)
    add_sweep(parser)
    parser.add_argument("trial", metavar="TRIAL", nargs="?", default="best", help="(default: best)")
    add_format(parser)


def run(given: argparse.Namespace) -> int:
    """Do what the arguments say and return the exit code."""
    from ditk_ray.cli import output
    from ditk_ray.tracking.folders import find_sweep, find_trial
    from ditk_ray.tracking.record import read_record

    record = read_record(find_sweep(given.sweep, given.storage_path))
    trial = find_trial(record, given.trial)
    _warn(trial)
    from ditk_ray.trial.warm_node import WarmNode

    output.note(f"replaying {trial.id} of {record.name}: importing DI-engine (some seconds)")
    with WarmNode() as warm:
        from ditk_ray.sweep.replay import replay_trial

        warm.join()

        def told(number: int, old: dict[str, Any], new: dict[str, Any]) -> None:
            then, now = (output.show_value(row.get(record.metric)) for row in (old, new))
            output.note(f"evaluation {number}: {record.metric} {then} then, {now} now")

        replay = replay_trial(record, trial, warm, told)
    _print(replay, given.format)
    return 0 if replay.agrees else 1


def _warn(trial: TrialRecord) -> None:
    from ditk_ray.cli import output
    from ditk_ray.trial.files import CHECKPOINTS_FOLDER

    if trial.changes:
        output.note("its scheduler changed its parameters on the way: the last ones are replayed")
    if trial.attempt and (Path(trial.dir) / CHECKPOINTS_FOLDER).exists():
        output.note("it went on from a checkpoint, and is replayed from the start")


def _print(replay: Replay, form: str) -> None:
    from ditk_ray.cli import output
    from ditk_ray.config.jsonable import json_text

    number = replay.first_difference
    if form == "json":
        print(json_text({**vars(replay), "agrees": replay.agrees, "first_difference": number}, 1))
        return
    out = output.console()
    if number is None:
        last = output.show_value(replay.replayed[-1].get(replay.metric))
        count = len(replay.replayed)
        out.print(
            f"{replay.trial}: agrees in all {count} evaluations; {replay.metric} {last} at the end",
            style="green",
        )
    else:
        then, now = (
            output.show_value(rows[number].get(replay.metric)) if number < len(rows) else "none"
            for rows in (replay.recorded, replay.replayed)
        )
        out.print(
            f"{replay.trial}: differs from evaluation {number + 1} on: "
            f"{replay.metric} {then} then, {now} now",
            style="red",
        )
    out.print(f"the replay is in {output.short_path(replay.folder)}")
