"""Whether a command that goes on with a sweep is the one that began it."""

from __future__ import annotations

import argparse
import contextlib
import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ditk_ray.errors import BadConfigError, Problem
from ditk_ray.tracking.record import SweepRecord

_COMPARED = (
    *("num_samples", "metric", "mode", "seeds_aggregate", "stopper", "searcher", "scheduler"),
    *("warm_start", "backend", "repeat_run_count", "seed", "num_workers_per_node"),
)
"""The arguments of `tune` that make a sweep what it is. Files and folders are not among them:
a copy of the code may be elsewhere each time."""

_REPEATED = {"values": "set", "searcher_opt": "searcher_opt", "scheduler_opt": "scheduler_opt"}
"""Those that may be given several times, in any order, each with its flag."""


def require_same_job(
    given: argparse.Namespace, cfg_class: str, folder: Path, record: SweepRecord
) -> None:
    """Raise `BadConfigError` unless the sweep was begun with this class and these arguments.

    Later changes of the class itself do not count, nor does what `extend` has added.
    """
    begun = record.job.get("name")
    differences = [] if begun in (None, cfg_class) else [f"of {begun}, not of {cfg_class}"]
    first = _arguments(_command(folder))
    if first is not None:
        differences += _differences(first, given)
    if differences:
        hint = "give another --name, or add to that sweep with `ditk-ray extend`"
        what = f"is another sweep: {'; '.join(differences)}"
        raise BadConfigError(Problem(f"--name {given.name}", what, hint))


def _command(folder: Path) -> Sequence[str]:
    """Return how a sweep was begun; nothing if what it has kept cannot be loaded here."""
    from ditk_ray.sweep.saved_job import load_job_of

    try:
        return load_job_of(folder).options.command
    except BadConfigError:
        return ()


def _arguments(command: Sequence[str]) -> argparse.Namespace | None:
    """Read a command once more; None if it is no `tune` of this version."""
    from ditk_ray.cli.main import build_parser

    if "tune" not in command[1:2]:
        return None
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            return build_parser().parse_args(command[1:])
    except SystemExit:
        return None


def _differences(first: argparse.Namespace, now: argparse.Namespace) -> Iterator[str]:
    for name in _COMPARED:
        if (old := getattr(first, name)) != (new := getattr(now, name)):
            yield f"with {_shown(name, old)}, not {_shown(name, new)}"
    for name, flag in _REPEATED.items():
        old, new = (_assigned(getattr(one, name)) for one in (first, now))
        for path, value in sorted(set(old.items()) ^ set(new.items())):
            had = "with" if old.get(path) == value else "without"
            yield f"{had} --{flag} {path}={value}"


def _assigned(texts: Sequence[str]) -> dict[str, str]:
    return {key.strip(): value for key, _, value in (text.partition("=") for text in texts)}


def _shown(name: str, value: Any) -> str:
    return f"no --{name}" if value is None else f"--{name} {value}"
