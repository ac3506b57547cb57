"""Having a trial save what it has learned before it is paused.

Trials save as often as that is cheap, so what they did since their last checkpoint would be
lost with a pause.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ditk_ray.trial.files import SAVE_FILE
from ditk_ray.trial.report_keys import SAVED

PATIENCE = 5
"""For how many evaluations it is waited: a trial is some ahead of its reports."""


class LastSaves:
    """Asks trials that are about to be paused for a checkpoint of their next evaluation."""

    def __init__(self, folder: Path, has_checkpoints: bool) -> None:
        self._folder = folder
        self._has_checkpoints = has_checkpoints
        self._waited: dict[str, int] = {}

    def must_wait(self, trial: str, result: Mapping[str, Any]) -> bool:
        """Say whether a pause has to wait for an evaluation that is saved; asks for one."""
        waited = self._waited.get(trial, 0)
        if not self._has_checkpoints or result.get(SAVED) or waited >= PATIENCE:
            self.forget(trial)
            return False
        try:
            (self._folder / trial / SAVE_FILE).touch()
        except OSError:  # no room for a checkpoint either
            self.forget(trial)
            return False
        self._waited[trial] = waited + 1
        return True

    def forget(self, trial: str) -> None:
        """Note that a trial is not about to be paused, or will not be waited for."""
        if self._waited.pop(trial, None) is not None:
            with contextlib.suppress(OSError):
                (self._folder / trial / SAVE_FILE).unlink(missing_ok=True)
