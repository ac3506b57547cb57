"""What a sweep was started with, kept so that it can go on in another process."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ditk_ray.config.job_spec import JobSpec
from ditk_ray.config.whole_file import replace_file
from ditk_ray.errors import BadConfigError, Problem
from ditk_ray.sweep.ledger import STATE_FOLDER
from ditk_ray.trial.shipping import Shipped

if TYPE_CHECKING:
    from ditk_ray.sweep.setup import SweepOptions

JOB_FILE = "job.pkl"


@dataclass(frozen=True)
class SavedJob:
    """A checked job, the options that it runs with, and the seed that its trials are drawn by."""

    job: JobSpec
    options: SweepOptions
    sampling_seed: int
    identity: str = ""
    """What no other sweep has, wherever it runs."""


def save_job(folder: Path, saved: SavedJob, python_path: tuple[str, ...]) -> None:
    """Keep a job; functions of the user's own files are kept whole, as they are now."""
    (folder / STATE_FOLDER).mkdir(mode=0o700, exist_ok=True)
    replace_file(_path(folder), pickle.dumps(Shipped.pack(saved, python_path)))


def load_job_of(folder: Path) -> SavedJob:
    """Load what a sweep was started with; raises `BadConfigError`."""
    path = _path(folder)
    try:
        saved = pickle.loads(path.read_bytes()).unpack()
    except FileNotFoundError as error:
        what = f"has no {path.relative_to(folder)}: it was made by an earlier version, or never ran"
        raise BadConfigError(Problem(f"SWEEP {folder.name}", what)) from error
    except Exception as error:
        what = f"cannot be loaded: {type(error).__name__}: {error}"
        hint = "resume it with the packages that it was started with, and its own modules in place"
        raise BadConfigError(Problem(str(path), what, hint)) from error
    if not isinstance(saved, SavedJob):
        raise BadConfigError(Problem(str(path), "is no saved job"))
    return saved


def _path(folder: Path) -> Path:
    return folder / STATE_FOLDER / JOB_FILE
