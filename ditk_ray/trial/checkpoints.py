"""A trial's own checkpoints: whole or not there at all, a limited number, newest first.

Each is a folder `<trial>/checkpoints/<number>/` with a file in DI-engine's own format for
each seed, what DI-engine leaves out beside it, and `meta.json`, which says what it is of. It is
put together in a hidden folder, written through to the disk, and renamed.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from ditk_ray.trial.files import CHECKPOINTS_FOLDER, META_FILE

STAGING_PREFIX = ".attempt_"


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
    """What a checkpoint is of: a trial after so many reports."""

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

    def as_text(self) -> str:
        """Return what `meta.json` holds."""
        return json.dumps(asdict(self), indent=1)

    @classmethod
    def from_text(cls, text: str) -> CheckpointMeta:
        """Read `meta.json`; raises ValueError or TypeError if it is none."""
        values = json.loads(text)
        seeds = {int(seed): SeedProgress(**told) for seed, told in values.pop("seeds").items()}
        return cls(**values, seeds=seeds)


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint that is whole."""

    folder: Path
    meta: CheckpointMeta

    @classmethod
    def read(cls, folder: Path) -> Checkpoint | None:
        """Return the checkpoint in a folder; None if there is none, or only a part of one."""
        try:
            meta = CheckpointMeta.from_text((folder / META_FILE).read_text())
            sizes = {name: (folder / name).stat().st_size for name in meta.files}
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            return None
        return cls(folder, meta) if sizes == dict(meta.files) else None

    def policy_file(self, seed: int) -> Path | None:
        """Return a seed's file in DI-engine's own format."""
        return self._if_there(policy_name(seed))

    def _if_there(self, name: str) -> Path | None:
        return self.folder / name if name in self.meta.files else None


def policy_name(seed: int) -> str:
    """Return the name of a seed's file in DI-engine's format."""
    return f"seed_{seed}.pth.tar"


def state_name(seed: int) -> str:
    """Return the name of the file with what DI-engine's own leaves out."""
    return f"seed_{seed}.state.pkl"


def buffer_name(seed: int) -> str:
    """Return the name of the file with a seed's replay buffer."""
    return f"seed_{seed}.buffer.pkl"


class CheckpointStore:
    """The checkpoints of the trial in `trial_folder`, of which the `kept` newest stay."""

    def __init__(self, trial_folder: Path, kept: int = 2) -> None:
        self._trial = trial_folder.name
        self._folder = trial_folder / CHECKPOINTS_FOLDER
        self._kept = max(1, kept)

    def latest(self) -> Checkpoint | None:
        """Return the newest checkpoint that is whole."""
        return next(self._whole(), None)

    def staging(self, attempt: int) -> Path:
        """Return the hidden folder in which an attempt's seeds save, a folder for each time."""
        return self._folder / f"{STAGING_PREFIX}{attempt}"

    def commit(self, staged: Path, meta: CheckpointMeta) -> Checkpoint:
        """Make a staged folder the newest checkpoint; raises OSError if it cannot be written.

        Files of seeds that have ended are taken over from the checkpoint before.
        """
        before = self.latest()
        self._take_over(before, staged, meta)
        files = {file.name: file.stat().st_size for file in staged.iterdir() if file.is_file()}
        origin = meta.origin or (before.meta.origin if before else None)
        meta = replace(meta, files=files, id=meta.id or uuid.uuid4().hex, origin=origin)
        return self._enter(staged, meta)

    def adopt(self, folder: Path, config: Mapping[str, Any]) -> Checkpoint | None:
        """Make a copy of a checkpoint from elsewhere the newest, and return what to go on from.

        `config` is what the trial goes on with. One of the trial's own is not taken: its
        newest is as new. Neither is one that it has gone on from already with the same
        config: then it is being restarted, and has come further since.
        """
        found, own = Checkpoint.read(folder), self.latest()
        if found is None or (found.meta.trial == self._trial and own is not None):
            return own
        origin = _fingerprint(found.meta.id, config)
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
        """Copy all files of the newest checkpoint, if there is one, into a folder."""
        newest = self.latest()
        for name in [*newest.meta.files, META_FILE] if newest else []:
            shutil.copyfile(newest.folder / name, target / name)  # type: ignore[union-attr]

    def clear_staging(self) -> None:
        """Remove what attempts that have ended left unfinished."""
        for folder in self._folder.glob(f"{STAGING_PREFIX}*"):
            shutil.rmtree(folder, ignore_errors=True)

    def _enter(self, staged: Path, meta: CheckpointMeta) -> Checkpoint:
        (staged / META_FILE).write_text(meta.as_text())
        for file in staged.iterdir():
            _write_through(file)
        _write_through(staged)
        final = self._folder / str(max(self._numbers(), default=0) + 1)
        staged.rename(final)
        _write_through(self._folder)
        for number in self._numbers()[: -self._kept]:
            shutil.rmtree(self._folder / str(number), ignore_errors=True)
        return Checkpoint(final, meta)

    def _take_over(self, before: Checkpoint | None, staged: Path, meta: CheckpointMeta) -> None:
        ended = {seed for seed, progress in meta.seeds.items() if progress.ended}
        for name in before.meta.files if before else ():
            if any(name.startswith(f"seed_{seed}.") for seed in ended):
                with contextlib.suppress(FileExistsError):
                    os.link(before.folder / name, staged / name)  # type: ignore[union-attr]

    def _whole(self) -> Iterator[Checkpoint]:
        for number in reversed(self._numbers()):
            found = Checkpoint.read(self._folder / str(number))
            if found is not None:
                yield found

    def _numbers(self) -> list[int]:
        names = [path.name for path in self._folder.glob("[0-9]*")]
        return sorted(int(name) for name in names if name.isdecimal())


def _fingerprint(checkpoint: str, config: Mapping[str, Any]) -> str:
    text = json.dumps([checkpoint, config], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _write_through(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
