"""A sweep's folder: finding one, seeing from outside how it stands, and asking it for something.

A request to a running sweep is a file in its folder, the answer is a file beside it: that works
from another terminal as from another host that sees the folder, and leaves nothing open to
strangers. The sweep looks for requests about twice a second.
"""

from __future__ import annotations

import json
import shlex
import shutil
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from enum import StrEnum
from math import prod
from pathlib import Path

from ditk_ray.config.options import default_storage
from ditk_ray.errors import BadConfigError, DitkRayError, Problem
from ditk_ray.record.record import (
    RECORD_FILE,
    SweepRecord,
    SweepStatus,
    TrialRecord,
    now,
    read_record,
    seconds_between,
)
from ditk_ray.util.files import write_whole
from ditk_ray.util.locks import is_running
from ditk_ray.util.suggest import nearest_names

BEST = "best"
"""What a person may type for a sweep's best trial."""

DEAD = "dead"
"""The status of a sweep whose process is gone without having said how it ended."""

STATE_FOLDER = "state"
"""Where a sweep keeps what it is resumed from."""

TRIAL_PREFIX = "trial_"
REPORT_FILE = "report.html"
BEST_CONFIG_FILE = "best_config.py"
REQUESTS_FOLDER = "requests"
_ANSWER = ".answer"
_REQUEST = ".request"
_NAMES_SHOWN = 5


def find_sweep(given: str, storage: Path) -> Path:
    """Return the folder of a sweep that is given by its path, or by its name in `storage`.

    Raises `BadConfigError` that names what is there instead.
    """
    path = Path(given).expanduser()
    path = path.parent if path.name == RECORD_FILE else path
    places = [path, storage.expanduser() / given] if given else []
    found = next((place for place in places if _is_sweep(place)), None)
    if found is not None:
        return found.resolve()
    folder = next((place for place in places if place.is_dir()), None)
    what = f"there is no such sweep in {storage}, and no such folder"
    if folder is not None:
        what = f"{folder} has no {RECORD_FILE}: it is not a sweep, or the sweep has just started"
    names = [sweep.name for sweep in list_sweeps(storage)]
    hint = _instead(Path(given).name, names, f"the newest in {storage}: ")
    if not names:
        empty = "holds no sweep" if storage.is_dir() else "does not exist"
        hint = f"{storage} {empty}; give --storage_path DIR, or run one with `ditk-ray tune`"
    raise BadConfigError(Problem(f"SWEEP {given!r}", what, hint))


def list_sweeps(storage: Path) -> list[Path]:
    """Return the folders of all sweeps in `storage`, those written to last first."""
    storage = storage.expanduser().resolve()
    if not storage.is_dir():
        return []
    found = [folder for folder in storage.iterdir() if _is_sweep(folder)]
    return sorted(found, key=lambda folder: (folder / RECORD_FILE).stat().st_mtime, reverse=True)


def find_trial(record: SweepRecord, given: str) -> TrialRecord:
    """Return the trial with this id, or `3` for `trial_00003`, or `best`.

    Raises `BadConfigError` that names trials that are there.
    """
    number = given.removeprefix(TRIAL_PREFIX)
    name = f"{TRIAL_PREFIX}{int(number):05d}" if number.isdecimal() else given
    trials = record.trials
    trial = record.best() if given == BEST else trials.get(given) or trials.get(name)
    if trial is not None:
        return trial
    what = f"{record.name} has no such trial"
    if given == BEST:
        what = f"no trial of {record.name} has a score"
    hint = _instead(given, list(record.trials), "there are ") or "no trial has been made yet"
    raise BadConfigError(Problem(f"TRIAL {given!r}", what, hint))


def sweep_to_type(folder: Path) -> str:
    """Return what to give a command for the sweep: its name, where that is enough."""
    if folder.parent == default_storage().resolve():
        return shlex.quote(folder.name)
    is_below = folder.is_relative_to(Path.cwd())
    return shlex.quote(str(folder.relative_to(Path.cwd()) if is_below else folder))


def _is_sweep(folder: Path) -> bool:
    return (folder / RECORD_FILE).is_file()


def _instead(given: str, names: Sequence[str], some: str) -> str:
    close = [] if given.isdecimal() else nearest_names(given, names)
    if close:
        return f"did you mean {' or '.join(repr(name) for name in close)}?"
    more = f", ... ({len(names)} in all)" if len(names) > _NAMES_SHOWN else ""
    return f"{some}{', '.join(names[:_NAMES_SHOWN])}{more}" if names else ""


@dataclass(frozen=True)
class SeenSweep:
    """A sweep's record, and whether its process lives at this moment."""

    folder: Path
    record: SweepRecord
    is_alive: bool
    """Also for a while after the last trial: its report and its records are to be finished."""

    @property
    def status(self) -> str:
        is_dead = self.record.status is SweepStatus.RUNNING and not self.is_alive
        return DEAD if is_dead else str(self.record.status)

    @property
    def is_running(self) -> bool:
        """Whether trials may still run."""
        return self.is_alive and self.record.status is SweepStatus.RUNNING

    @property
    def done(self) -> int:
        return sum(trial.state.is_final for trial in self.record.trials.values())

    @property
    def total(self) -> int:
        """How many trials were asked for: the grid's points, `num_samples` times."""
        job = self.record.job
        grids = [
            len(item["choices"]) for item in job.get("space", {}).values() if item["kind"] == "grid"
        ]
        return max(prod(grids) * int(job.get("num_samples", 0)), len(self.record.trials))

    @property
    def seconds(self) -> float | None:
        """How long it ran: until its end, until now, or until it was last heard of."""
        record = self.record
        heard = datetime.fromtimestamp((self.folder / RECORD_FILE).stat().st_mtime, UTC)
        last = now() if self.is_alive else heard.isoformat()
        return seconds_between(record.started, record.ended or last)


def look_at(folder: Path) -> SeenSweep:
    """Read a sweep's record and see whether it runs. Raises `BadConfigError` as `read_record`."""
    record = read_record(folder)
    try:
        is_alive = is_running(folder)
    except OSError:  # another user's: the lock may not be touched, so believe the record
        return SeenSweep(folder, record, record.status is SweepStatus.RUNNING)
    if record.status is SweepStatus.RUNNING and not is_alive:
        record = read_record(folder)  # it may have ended, and said so, since the first time
    return SeenSweep(folder, record, is_alive)


class Action(StrEnum):
    """What can be asked for."""

    PAUSE = "pause"
    CONTINUE = "continue"
    CANCEL = "cancel"
    PRIORITY = "priority"


@dataclass(frozen=True)
class Request:
    """What a sweep is asked to do; without a trial it concerns the whole sweep."""

    action: Action
    trial: str | None = None
    priority: int | None = None


@dataclass(frozen=True)
class Answer:
    """What the sweep says to it."""

    is_done: bool
    message: str


class NoAnswerError(DitkRayError):
    """The sweep runs, but does not take requests."""


def ask(folder: Path, request: Request, seconds: float = 30.0) -> Answer:
    """Put a request and wait for the answer; raises `NoAnswerError`, the request is then undone."""
    place = folder / REQUESTS_FOLDER
    place.mkdir(exist_ok=True)
    # By their names, requests are in the order they were made.
    path = place / f"{time.time_ns()}-{uuid.uuid4().hex[:8]}{_REQUEST}"
    answer = path.with_suffix(_ANSWER)
    write_whole(path, json.dumps(asdict(request)))
    deadline = time.monotonic() + seconds
    try:
        while time.monotonic() < deadline:
            if answer.exists():
                return Answer(**json.loads(answer.read_text()))
            time.sleep(0.05)
    finally:
        path.unlink(missing_ok=True)
        answer.unlink(missing_ok=True)
    raise NoAnswerError(f"{folder.name} has not answered for {seconds:.0f} s; nothing was changed")


def discard_requests(folder: Path) -> None:
    """Forget requests to an earlier process of the sweep, whose callers are gone."""
    shutil.rmtree(folder / REQUESTS_FOLDER, ignore_errors=True)


def waiting_requests(folder: Path) -> Iterator[tuple[Path, Request]]:
    """Yield the requests that have not been answered, oldest first; other files are removed."""
    for path in sorted((folder / REQUESTS_FOLDER).glob(f"*{_REQUEST}")):
        try:
            values = json.loads(path.read_text())
            yield path, Request(**values | {"action": Action(values["action"])})
        except FileNotFoundError:  # withdrawn
            continue
        except (ValueError, KeyError, TypeError):
            path.unlink(missing_ok=True)


def give_answer(path: Path, answer: Answer) -> None:
    """Answer a request; one that was withdrawn meanwhile needs none."""
    if path.exists():
        write_whole(path.with_suffix(_ANSWER), json.dumps(asdict(answer)))
        path.unlink(missing_ok=True)
