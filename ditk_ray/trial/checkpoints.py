"""A trial's own checkpoints: whole or not there at all, a limited number, newest first.

Each is a folder `<trial>/checkpoints/<number>/` with a file in DI-engine's own format for
each seed, what DI-engine leaves out beside it, and `meta.json`, which says what it is of. It is
put together in a hidden folder, written through to the disk, and renamed.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import sys
import time
import traceback
import uuid
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ditk_ray.trial.evaluation_hook import Evaluation
from ditk_ray.trial.plan import Saving
from ditk_ray.trial.reports import CHECKPOINTS_FOLDER, META_FILE

if TYPE_CHECKING:
    from ditk_ray.trial.engine_state import EngineParts

STAGING_PREFIX = ".attempt_"

KEPT = 2
"""How many stay: one is enough to resume, the one before is for the case that it is damaged."""

SHARE = 20
"""Saving may take this fraction of a trial's time (one part in N)."""

LEAST_SECONDS = 1.0
"""How much training is worth a checkpoint at all."""

_REMEMBERED = 100
"""How many of the numbers at which seeds save are kept for those that come behind."""


@dataclass(frozen=True)
class SeedProgress:
    """How far one seed of a trial has come."""

    evaluation: dict[str, Any] = field(default_factory=dict)
    """The metrics of its last evaluation."""
    ended: bool = False
    returned: dict[str, float] = field(default_factory=dict)
    """The numbers that its training gave back, if it has ended."""
    result: str | None = None
    """The file that DI-engine pickled, if it has ended."""


@dataclass(frozen=True)
class CheckpointMeta:
    """What a checkpoint is of: a trial after a number of reports."""

    trial: str
    reports: int
    attempt: int
    env_step: int = 0
    train_iter: int = 0
    time: float = 0.0
    """The seconds that it has trained."""
    seeds: Mapping[int, SeedProgress] = field(default_factory=dict)
    files: Mapping[str, int] = field(default_factory=dict)
    """The files that belong to it, and their sizes."""
    id: str = ""
    origin: str | None = None
    """By which load of another trial's checkpoint this line of training began."""


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint that is whole."""

    folder: Path
    meta: CheckpointMeta

    @classmethod
    def read(cls, folder: Path) -> Checkpoint | None:
        """Return the checkpoint in a folder; None if there is none, or only a part of one."""
        try:
            values = json.loads((folder / META_FILE).read_text())
            seeds = {int(seed): SeedProgress(**saved) for seed, saved in values["seeds"].items()}
            meta = CheckpointMeta(**{**values, "seeds": seeds})
            sizes = {name: (folder / name).stat().st_size for name in meta.files}
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            return None
        return cls(folder, meta) if sizes == meta.files else None


def policy_name(seed: int) -> str:
    return f"seed_{seed}.pth.tar"


def state_name(seed: int) -> str:
    return f"seed_{seed}.state.pkl"


def buffer_name(seed: int) -> str:
    return f"seed_{seed}.buffer.pkl"


class CheckpointStore:
    """The checkpoints of the trial in `trial_folder`, of which the newest stay."""

    def __init__(self, trial_folder: Path) -> None:
        self._trial = trial_folder.name
        self._folder = trial_folder / CHECKPOINTS_FOLDER

    def latest(self) -> Checkpoint | None:
        found = (Checkpoint.read(self._folder / str(number)) for number in self._numbers()[::-1])
        return next(filter(None, found), None)

    def staging(self, attempt: int) -> Path:
        """Return the hidden folder in which an attempt's seeds save, a folder for each time."""
        return self._folder / f"{STAGING_PREFIX}{attempt}"

    def commit(self, staged: Path, meta: CheckpointMeta) -> Checkpoint:
        """Make a staged folder the newest checkpoint; raises OSError if it cannot be written.

        Files of seeds that have ended are taken over from the checkpoint before.
        """
        if before := self.latest():
            ended = [f"seed_{seed}." for seed, progress in meta.seeds.items() if progress.ended]
            for name in before.meta.files:
                if name.startswith(tuple(ended)):
                    with contextlib.suppress(FileExistsError):
                        os.link(before.folder / name, staged / name)
        files = {file.name: file.stat().st_size for file in staged.iterdir() if file.is_file()}
        origin = before.meta.origin if before else None
        return self._enter(staged, replace(meta, files=files, id=uuid.uuid4().hex, origin=origin))

    def adopt(self, folder: Path, config: Mapping[str, Any]) -> Checkpoint | None:
        """Make a copy of a checkpoint from elsewhere the newest, and return what to resume from.

        `config` is what the trial is resumed with. One of the trial's own is not taken: its
        newest is as new. Neither is one that it has resumed from already with the same
        config: then it is being restarted, and has come further since.
        """
        found, own = Checkpoint.read(folder), self.latest()
        if found is None or (found.meta.trial == self._trial and own is not None):
            return own
        line = json.dumps([found.meta.id, config], sort_keys=True, default=str)
        origin = hashlib.sha256(line.encode()).hexdigest()[:16]
        if own is not None and own.meta.origin == origin:
            return own
        staged = self._folder / f"{STAGING_PREFIX}adopted" / origin
        shutil.rmtree(staged, ignore_errors=True)
        staged.mkdir(parents=True)
        for name in found.meta.files:
            shutil.copyfile(found.folder / name, staged / name)
        is_own = found.meta.trial == self._trial
        meta = replace(found.meta, trial=self._trial, origin=None if is_own else origin)
        return self._enter(staged, meta)

    def copy_latest(self, target: Path) -> None:
        if newest := self.latest():
            for name in (*newest.meta.files, META_FILE):
                shutil.copyfile(newest.folder / name, target / name)

    def clear_staging(self) -> None:
        """Remove what attempts that have ended left unfinished."""
        for folder in self._folder.glob(f"{STAGING_PREFIX}*"):
            shutil.rmtree(folder, ignore_errors=True)

    def _enter(self, staged: Path, meta: CheckpointMeta) -> Checkpoint:
        (staged / META_FILE).write_text(json.dumps(asdict(meta), indent=1))
        for file in staged.iterdir():
            _write_through(file)
        _write_through(staged)
        final = self._folder / str(max(self._numbers(), default=0) + 1)
        staged.rename(final)
        _write_through(self._folder)
        for number in self._numbers()[:-KEPT]:
            shutil.rmtree(self._folder / str(number), ignore_errors=True)
        return Checkpoint(final, meta)

    def _numbers(self) -> list[int]:
        names = [path.name for path in self._folder.glob("[0-9]*")]
        return sorted(int(name) for name in names if name.isdecimal())


def _write_through(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class CheckpointSaver:
    """Saves the policy and all else of a seed into its attempt's staging folder.

    A failure to do so is printed and otherwise ignored: training continues, and the
    checkpoint before stays.
    """

    def __init__(self, seed: int, saving: Saving, parts: EngineParts) -> None:
        self._seed = seed
        self._saving = saving
        self._parts = parts
        self._next = time.monotonic()

    def save(self, evaluation: Evaluation, number: int) -> bool:
        """Save, if it is time for it; say whether all of it was written."""
        if evaluation.save_checkpoint is None:
            return False
        folder = self._saving.folder / str(number)
        begun = time.monotonic()
        try:
            if not self._is_wanted(number):
                return False
            self._write(evaluation, evaluation.save_checkpoint, folder)
            is_saved = True
        except Exception:
            with contextlib.suppress(OSError):  # the log may be on the same full disk
                print(f"no checkpoint at evaluation {number}:", file=sys.stderr)
                traceback.print_exc()
            # What is half-written goes; other seeds' files will not be used either.
            shutil.rmtree(folder, ignore_errors=True)
            is_saved = False
        now = time.monotonic()
        self._next = now + max(LEAST_SECONDS, SHARE * (now - begun))
        return is_saved

    def _is_wanted(self, number: int) -> bool:
        if self._saving.every_evaluation:
            return True
        if self._saving.agreement is None:
            return self._is_due()
        return agreed(self._saving.agreement, number, self._is_due)

    def _is_due(self) -> bool:
        wish = self._saving.wish
        return time.monotonic() >= self._next or (wish is not None and wish.exists())

    def _write(self, evaluation: Evaluation, save: Callable[[str], None], folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._parts.save_policy(folder / policy_name(self._seed), save)
        self._parts.save(folder / state_name(self._seed), evaluation)
        if self._saving.buffer:
            self._parts.save_buffer(folder / buffer_name(self._seed))


def agreed(file: Path, number: int, is_due: Callable[[], bool]) -> bool:
    """Say whether the seeds of a trial save at this evaluation.

    The first of them to come to a number decides, and the others do the same: only what
    all have saved at the same number is a checkpoint.
    """
    with file.open("a+") as shared:
        fcntl.flock(shared, fcntl.LOCK_EX)
        shared.seek(0)
        decided, saved = 0, []
        with contextlib.suppress(ValueError):  # empty, or cut short by a full disk
            decided, saved = json.loads(shared.read())
        if number > decided:
            saved = [*saved[-_REMEMBERED:], number] if is_due() else saved
            shared.seek(0)
            shared.truncate()
            shared.write(json.dumps([number, saved]))
        return number in saved
