"""Which files the attempts of a trial have left, by seed."""

from __future__ import annotations

import re
from pathlib import Path

from ditk_ray.trial.files import LOG_FILE

_ATTEMPT = re.compile(r"attempt_(\d+)")
_SEED = re.compile(r"seed_-?\d+")


def attempts(trial: Path) -> dict[int, Path]:
    """Return the folders of a trial's attempts by number, oldest first."""
    found = {}
    for folder in trial.iterdir() if trial.is_dir() else []:
        match = _ATTEMPT.fullmatch(folder.name)
        if match and folder.is_dir():
            found[int(match[1])] = folder
    return dict(sorted(found.items()))


def seed_folders(attempt: Path) -> dict[str, Path]:
    """Return where an attempt trains each seed, by `seed_N`; a single seed has no name."""
    found = {
        folder.name: folder
        for folder in sorted(attempt.glob("seed_*"), key=_by_number)
        if _SEED.fullmatch(folder.name) and folder.is_dir()
    }
    return {"": attempt} if not found or (attempt / LOG_FILE).exists() else found


def attempt_logs(attempt: Path) -> dict[str, Path]:
    """Return the logs that are there, by seed."""
    logs = {seed: folder / LOG_FILE for seed, folder in seed_folders(attempt).items()}
    return {seed: log for seed, log in logs.items() if log.is_file()}


def event_folders(attempt: Path) -> dict[str, Path]:
    """Return the folders with TensorBoard event files, by seed.

    DI-engine writes into one; should there be several, each has its path behind the seed.
    """
    found: dict[str, Path] = {}
    for seed, folder in seed_folders(attempt).items():
        places = sorted({file.parent for file in folder.rglob("*tfevents*") if file.is_file()})
        for place in places:
            inside = str(place.relative_to(folder)) if len(places) > 1 else ""
            found["/".join(filter(None, [seed, inside]))] = place
    return found


def _by_number(folder: Path) -> tuple[int, str]:
    number = folder.name.removeprefix("seed_")
    return (int(number) if number.lstrip("-").isdecimal() else 0, folder.name)
