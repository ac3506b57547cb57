"""Finding a sweep or a trial by what a person typed."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from ditk_ray.config.nearest import nearest_names
from ditk_ray.config.storage import default_storage
from ditk_ray.errors import BadConfigError, Problem
from ditk_ray.tracking.record import RECORD_FILE, SweepRecord, TrialRecord

BEST = "best"
"""What a person may type for a sweep's best trial."""

_NAMES_SHOWN = 5
_TRIAL_PREFIX = "trial_"


def find_sweep(given: str, storage: Path) -> Path:
    """Return the folder of a sweep that is given by its path, or by its name in `storage`.

    Raises `BadConfigError` that names what is there instead.
    """
    path = Path(given).expanduser()
    places = [path.parent if path.name == RECORD_FILE else path, storage.expanduser() / given]
    for place in places if given else []:
        if _is_sweep(place):
            return place.resolve()
    folder = next((place for place in places if given and place.is_dir()), None)
    if folder is not None:
        what = f"{folder} has no {RECORD_FILE}: it is no sweep's folder, or the sweep just starts"
        raise BadConfigError(Problem(f"SWEEP {given}", what, _known_sweeps(given, storage)))
    what = f"there is no such sweep in {storage}, and no such folder"
    raise BadConfigError(Problem(f"SWEEP {given!r}", what, _known_sweeps(given, storage)))


def list_sweeps(storage: Path) -> list[Path]:
    """Return the folders of all sweeps in `storage`, those written to last first."""
    storage = storage.expanduser().resolve()
    if not storage.is_dir():
        return []
    found = [folder for folder in storage.iterdir() if _is_sweep(folder)]
    return sorted(found, key=lambda folder: (folder / RECORD_FILE).stat().st_mtime, reverse=True)


def find_trial(record: SweepRecord, given: str) -> TrialRecord:
    """Return the trial with this id, or `3` for `trial_00003`, or `best`.

    Also the beginning of what follows `trial_` will do, if only one trial has it.
    Raises `BadConfigError` that names trials that are there.
    """
    if given == BEST:
        best = record.best()
        if best is None:
            what = f"no trial of {record.name} has a score"
            raise BadConfigError(Problem(f"TRIAL {given}", what, _known_trials(given, record)))
        return best
    found = _matching(list(record.trials), given)
    if len(found) == 1:
        return record.trials[found[0]]
    if found:
        what = f"may be each of {_some(found)}"
        raise BadConfigError(Problem(f"TRIAL {given}", what))
    what = f"{record.name} has no such trial"
    raise BadConfigError(Problem(f"TRIAL {given!r}", what, _known_trials(given, record)))


def _is_sweep(folder: Path) -> bool:
    return (folder / RECORD_FILE).is_file()


def _matching(known: Sequence[str], given: str) -> list[str]:
    if given in known:
        return [given]
    short = given.removeprefix(_TRIAL_PREFIX)
    ends = {name: name.removeprefix(_TRIAL_PREFIX) for name in known}
    if short.isdecimal():
        same = [name for name in known if ends[name].isdecimal() and int(ends[name]) == int(short)]
        if same:
            return same
        # Numbers are whole: 1 must not become 10.
        return [name for name in known if not ends[name].isdecimal() and _begins(ends[name], short)]
    return [name for name in known if _begins(ends[name], short)]


def _begins(end: str, short: str) -> bool:
    return bool(short) and end.startswith(short)


def _known_sweeps(given: str, storage: Path) -> str:
    names = [folder.name for folder in list_sweeps(storage)]
    if not names:
        empty = "holds no sweep" if storage.is_dir() else "does not exist"
        return f"{storage} {empty}; give --storage_path DIR, or run one with `ditk-ray tune`"
    close = nearest_names(Path(given).name, names)
    if close:
        return f"did you mean {' or '.join(repr(name) for name in close)}?"
    return f"the newest in {storage}: {_some(names)}"


def _known_trials(given: str, record: SweepRecord) -> str:
    names = list(record.trials)
    if not names:
        return "no trial has been made yet"
    close = nearest_names(given, names)
    if close and not given.isdecimal():
        return f"did you mean {' or '.join(repr(name) for name in close)}?"
    return f"there are {_some(names)}"


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_NAMES_SHOWN])
    return shown if len(names) <= _NAMES_SHOWN else f"{shown}, ... ({len(names)} in all)"


def sweep_to_type(folder: Path) -> str:
    """Return what to give a command for the sweep: its name, where that is enough."""
    if folder.parent == default_storage().resolve():
        return shlex.quote(folder.name)
    try:
        return shlex.quote(str(folder.relative_to(Path.cwd())))
    except ValueError:
        return shlex.quote(str(folder))
