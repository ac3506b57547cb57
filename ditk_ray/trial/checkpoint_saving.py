"""Saving what a training could go on from, in the training's own process."""

from __future__ import annotations

import contextlib
import fcntl
import json
import shutil
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from ditk_ray.trial.checkpoints import buffer_name, policy_name, state_name
from ditk_ray.trial.evaluation_hook import Evaluation
from ditk_ray.trial.spec import Attempt

if TYPE_CHECKING:
    from ditk_ray.trial.engine_parts import EngineParts

SHARE = 20
"""Saving may take one part in so many of a trial's time."""

LEAST_SECONDS = 1.0
"""How much training is worth a checkpoint at all."""

_REMEMBERED = 100
"""How many of the numbers at which seeds save are told to those that come behind."""


class Pace:
    """Says when to save: as soon as the time since the last outweighs what that one took."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._next = clock()

    def is_due(self) -> bool:
        """Say whether it is time."""
        return self._clock() >= self._next

    def note(self, seconds: float) -> None:
        """Take what a save has taken."""
        self._next = self._clock() + max(LEAST_SECONDS, SHARE * seconds)


class CheckpointSaver:
    """Saves the policy and all else of a seed into its attempt's staging folder.

    A failure to do so is printed and otherwise ignored: the training goes on, and the
    checkpoint before stays.
    """

    def __init__(self, attempt: Attempt, parts: EngineParts) -> None:
        self._seed = attempt.seed
        self._saving = attempt.saving
        self._parts = parts
        self._pace = Pace()

    def save(self, evaluation: Evaluation, number: int) -> bool:
        """Save, if it is time for it; say whether all of it was written."""
        if self._saving is None or evaluation.save_checkpoint is None:
            return False
        begun: float | None = None
        try:
            if not self._is_wanted(number):
                return False
            begun = time.monotonic()
            self._write(evaluation, self._saving.folder / str(number))
        except Exception:
            with contextlib.suppress(OSError):  # the log may be on the same full disk
                print(f"no checkpoint at evaluation {number}:", file=sys.stderr)
                traceback.print_exc()
            self._clear(self._saving.folder / str(number))
            return False
        finally:
            if begun is not None:
                self._pace.note(time.monotonic() - begun)
        return True

    def _is_wanted(self, number: int) -> bool:
        assert self._saving is not None
        if self._saving.every_evaluation:
            return True
        if self._saving.agreement is None:
            return self._is_due()
        return agreed(self._saving.agreement, number, self._is_due)

    def _is_due(self) -> bool:
        assert self._saving is not None
        wish = self._saving.wish
        return self._pace.is_due() or (wish is not None and wish.exists())

    def _write(self, evaluation: Evaluation, folder: Path) -> None:
        assert self._saving is not None and evaluation.save_checkpoint is not None
        folder.mkdir(parents=True, exist_ok=True)
        self._parts.save_policy(folder / policy_name(self._seed), evaluation.save_checkpoint)
        train_iter = int(evaluation.metrics["train_iter"])
        state = folder / state_name(self._seed)
        self._parts.save(state, evaluation.evaluator, train_iter, evaluation.outcome)
        if self._saving.buffer:
            self._parts.save_buffer(folder / buffer_name(self._seed))

    def _clear(self, folder: Path) -> None:
        """Leave nothing of what was half-written; other seeds' files will not be used either."""
        shutil.rmtree(folder, ignore_errors=True)


def agreed(file: Path, number: int, is_due: Callable[[], bool]) -> bool:
    """Say whether the seeds of a trial save at this evaluation.

    The first of them to come to a number decides, and the others do the same: only what
    all have saved at the same number is a checkpoint.
    """
    with file.open("a+") as shared:
        fcntl.flock(shared, fcntl.LOCK_EX)
        shared.seek(0)
        decided, saved = json.loads(shared.read() or "[0, []]")
        if number > decided:
            saved = [*saved[-_REMEMBERED:], number] if is_due() else saved
            shared.seek(0)
            shared.truncate()
            shared.write(json.dumps([number, saved]))
        return number in saved
