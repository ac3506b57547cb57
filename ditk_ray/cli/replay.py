"""`ditk-ray replay`: run a recorded trial again and compare."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ditk_ray.cli.flags import Format, SweepCommand, format_option
from ditk_ray.cli.output import note, print_value, short_path, show_value
from ditk_ray.config.options import option
from ditk_ray.execution.fork_client import ForkClient
from ditk_ray.record.record import read_record
from ditk_ray.record.sweep_folder import find_sweep, find_trial
from ditk_ray.trial.reports import CHECKPOINTS_FOLDER

if TYPE_CHECKING:
    from ditk_ray.sweep.replay import Replay


class ReplayTrial(SweepCommand):
    """Run a trial again from its recorded config and seeds, and say whether its scores agree.

      ditk-ray replay my_sweep                  the best trial
      ditk-ray replay my_sweep trial_00003

    It runs as many evaluations as were recorded. Exit code: 0 if all are the same, else 1.
    """

    trial: str = option("(default: best)", "best", positional=True)
    format: Format = format_option()

    def run(self) -> int:
        record = read_record(find_sweep(self.sweep, self.storage_path))
        trial = find_trial(record, self.trial)
        if trial.changes:
            note("its scheduler changed its parameters during the run: the last ones are replayed")
        if trial.attempt and (Path(trial.dir) / CHECKPOINTS_FOLDER).exists():
            note("it was resumed from a checkpoint, and is replayed from the start")
        what = f"replaying {trial.id} of {record.name} in a process of this machine"
        note(f"{what}: importing DI-engine (some seconds)")

        def show(number: int, old: dict[str, Any], new: dict[str, Any]) -> None:
            then, now = (show_value(row.get(record.metric)) for row in (old, new))
            note(f"evaluation {number}: {record.metric} {then} then, {now} now")

        with ForkClient() as warm:
            from ditk_ray.sweep.replay import replay_trial  # imports Ray while DI-engine is

            warm.join()
            replay = replay_trial(record, trial, warm, show)
        if self.format == "json":
            more = {"agrees": replay.agrees, "first_difference": replay.first_difference}
            print_value(vars(replay) | more)
        else:
            print(f"{replay.trial}: {_verdict(replay)}")
            print(f"the replay is in {short_path(replay.folder)}")
        return 0 if replay.agrees else 1


def _verdict(replay: Replay) -> str:
    number = replay.first_difference
    if number is None:
        last = show_value(replay.replayed[-1].get(replay.metric))
        count = len(replay.replayed)
        return f"agrees in all {count} evaluations; {replay.metric} {last} at the end"
    then, now = (
        show_value(rows[number].get(replay.metric)) if number < len(rows) else "none"
        for rows in (replay.recorded, replay.replayed)
    )
    return f"differs from evaluation {number + 1} on: {replay.metric} {then} then, {now} now"
