"""`ditk-ray logs`: what a trial has printed, also while it runs."""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from functools import cache
from pathlib import Path

from ditk_ray.cli.flags import SweepCommand
from ditk_ray.cli.output import LineBuffer, note
from ditk_ray.config.options import option, positive
from ditk_ray.errors import BadConfigError, DitkRayError, Problem
from ditk_ray.record.record import SweepRecord, TrialRecord
from ditk_ray.record.sweep_folder import BEST, TRIAL_PREFIX, find_sweep, find_trial, look_at
from ditk_ray.record.trial_folder import Piece, TrialLogs, attempts

_POLL_SECONDS = 0.5


class Logs(SweepCommand):
    """Show what a trial has printed.

      ditk-ray logs my_sweep trial_00003
      ditk-ray logs my_sweep 3 --follow          until the trial ends
      ditk-ray logs my_sweep best --tail 20
      ditk-ray logs my_sweep 3 --attempt 0 --seed 1

    Of a trial that ran several times, the last attempt is shown.
    """

    trial: str = option("trial_00003, or 3, or best", positional=True)
    follow: bool = option("wait for the log, and print it until the trial ends", False)
    attempt: int | None = option("an earlier attempt (default: the last)", metavar="N")
    seed: int | None = option("only this seed's log", metavar="N")
    tail: int | None = option("only the last N lines", metavar="N", parse=positive)

    def run(self) -> int:
        folder = find_sweep(self.sweep, self.storage_path)
        record = look_at(folder).record
        seed = _seed_name(record, self.seed)
        trial = _find_or_await(folder, self.trial, self.follow)
        logs = TrialLogs(folder / trial.id, self.attempt, seed, self.tail)
        printer = LogPrinter(seed is None and len(record.job.get("seeds", [])) > 1)
        if self.follow:
            _follow(folder, trial, logs, printer)
        else:
            known = attempts(Path(trial.dir))
            if self.attempt is not None and self.attempt not in known:
                hint = f"there are {', '.join(map(str, known))}" if known else ""
                what = f"{trial.id} has no such attempt"
                raise BadConfigError(Problem(f"--attempt {self.attempt}", what, hint))
            _show_new(logs, printer)
        printer.close()
        if printer.is_empty:
            raise DitkRayError(f"{trial.id} has printed nothing")
        return 0


def _follow(folder: Path, trial: TrialRecord, logs: TrialLogs, printer: LogPrinter) -> None:
    note_once = cache(note)
    while True:
        seen = look_at(folder)  # asked first: what it wrote before is then read
        _show_new(logs, printer)
        if not seen.is_running or seen.record.trials[trial.id].state.is_final:
            return
        if printer.is_empty:
            note_once(f"waiting for {trial.id}, which is {trial.state}")
        time.sleep(_POLL_SECONDS)


def _show_new(logs: TrialLogs, printer: LogPrinter) -> None:
    for piece in logs.read():
        printer.show(piece)
    sys.stdout.flush()


def _find_or_await(folder: Path, given: str, is_patient: bool) -> TrialRecord:
    """Return the trial; a running sweep may still have to make it."""
    note_once = cache(note)
    while True:
        seen = look_at(folder)
        number = given.removeprefix(TRIAL_PREFIX)
        may_come = given == BEST or (number.isdecimal() and int(number) < seen.total)
        try:
            return find_trial(seen.record, given)
        except BadConfigError:
            if not (is_patient and seen.is_running and may_come):
                raise
        note_once(f"waiting for {given}")
        time.sleep(_POLL_SECONDS)


def _seed_name(record: SweepRecord, seed: int | None) -> str | None:
    if seed is None:
        return None
    seeds = record.job.get("seeds", [seed])
    if seed not in seeds:
        known = ", ".join(str(item) for item in seeds)
        what = f"no trial of {record.name} has it"
        raise BadConfigError(Problem(f"--seed {seed}", what, f"there are {known}"))
    return f"seed_{seed}" if len(seeds) > 1 else ""


class LogPrinter:
    """Prints texts as they come; with several seeds in whole lines, each with its seed."""

    def __init__(self, has_seeds: bool) -> None:
        self._has_seeds = has_seeds
        self._attempt: int | None = None
        self._lines: defaultdict[str, LineBuffer] = defaultdict(LineBuffer)

    @property
    def is_empty(self) -> bool:
        return self._attempt is None

    def show(self, piece: Piece) -> None:
        if self._attempt not in (None, piece.attempt):
            self._end_lines()
            sys.stdout.write(f"==> attempt {piece.attempt} <==\n")
        self._attempt = piece.attempt
        lines = self._lines[piece.seed].take(piece.text)
        if self._has_seeds:
            sys.stdout.writelines(f"{piece.seed} | {line}\n" for line in lines)
        else:
            sys.stdout.write(piece.text)

    def close(self) -> None:
        """Print what is left of seeds' lines; a log alone is printed as it is."""
        if self._has_seeds:
            self._end_lines()
        sys.stdout.flush()

    def _end_lines(self) -> None:
        for seed, lines in self._lines.items():
            for rest in lines.close():
                sys.stdout.write(f"{seed} | {rest}\n" if self._has_seeds else "\n")
