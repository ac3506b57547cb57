"""`ditk-ray pause`, `continue`, `cancel` and `priority`: act on a sweep that runs."""

from __future__ import annotations

from typing import ClassVar

from ditk_ray.cli.flags import Format, SweepCommand, format_option
from ditk_ray.cli.output import print_value
from ditk_ray.config.options import option
from ditk_ray.errors import BadConfigError, DitkRayError, Problem
from ditk_ray.record.sweep_folder import (
    Action,
    Request,
    ask,
    find_sweep,
    find_trial,
    look_at,
    sweep_to_type,
)


class Cancel(SweepCommand):
    """End a trial of a running sweep, or stop the whole sweep.

      ditk-ray cancel my_sweep 3
      ditk-ray cancel my_sweep                  the whole sweep; `ditk-ray resume` continues it

    It works from any terminal or host that sees the sweep's folder.
    """

    action: ClassVar = Action.CANCEL
    trial: str | None = option(
        "its name or number (default: the whole sweep)", None, positional=True
    )
    rank: int | None = None
    format: Format = format_option()

    def run(self) -> int:
        seen = look_at(find_sweep(self.sweep, self.storage_path))
        trial = find_trial(seen.record, self.trial).id if self.trial is not None else None
        resume = f"ditk-ray resume {sweep_to_type(seen.folder)}"
        if not seen.is_running:
            hint = "" if seen.status == "finished" else f"resume it first: {resume}"
            what = f"does not run ({seen.status})"
            raise BadConfigError(Problem(f"SWEEP {seen.folder.name}", what, hint))
        answer = ask(seen.folder, Request(self.action, trial, self.rank))
        if not answer.is_done:
            raise DitkRayError(answer.message)
        if self.format == "json":
            print_value(vars(answer))
        else:
            print(answer.message if trial else f"{answer.message}\nresume it later: {resume}")
        return 0


class Pause(Cancel):
    """Pause a trial of a running sweep at its next evaluation.

    ditk-ray pause my_sweep 3                 trial_00003
    ditk-ray continue my_sweep 3              resumes it from there
    """

    action: ClassVar = Action.PAUSE
    trial: str = option("its name or number", positional=True)


class Continue(Pause):
    """Resume a paused trial of a running sweep.

    ditk-ray continue my_sweep 3
    ditk-ray continue my_sweep 3 --priority 10
    """

    action: ClassVar = Action.CONTINUE
    rank: int | None = option("its new priority", flags=["--priority"], metavar="N")


class Priority(Pause):
    """Set the priority of a trial of a running sweep.

    ditk-ray priority my_sweep 3 10           it takes the place of one that ranks lower
    """

    action: ClassVar = Action.PRIORITY
    rank: int = option("higher goes first; the default is 0", positional=True, metavar="N")
