"""Where a sweep comes from: code, command, Python, packages, machine.

Kept in `provenance/` beside the sweep, for a reader a month later. Secrets are
masked as far as they can be told from other text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ditk_ray.config.jsonable import json_text
from ditk_ray.config.whole_file import write_whole
from ditk_ray.provenance import machine
from ditk_ray.provenance.masking import mask_arguments, mask_text
from ditk_ray.provenance.repository import Git, RepositoryReader, find_root, shown

VERSION = 1
PROVENANCE_FOLDER = "provenance"
PROVENANCE_FILE = "provenance.json"


def write_provenance(
    folder: Path,
    places: Mapping[str, Path],
    resources: Mapping[str, Any],
    command: Sequence[str],
) -> Path:
    """Write down what a sweep runs and where, and return the folder with it.

    `places` are files or folders of code by a label; the repositories that hold
    them are found and described, each with a `.diff` if it has changes. What an
    earlier call wrote is replaced. What cannot be found out becomes a note in
    `provenance.json`; only an `OSError` of writing is raised, as for a full disk.
    """
    provenance = folder / PROVENANCE_FOLDER
    provenance.mkdir(parents=True, exist_ok=True)
    for old in provenance.glob("*.diff"):
        old.unlink()
    notes: list[str] = []
    facts = {
        "version": VERSION,
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": mask_arguments([shown(argument) for argument in command]),
        "resources": dict(resources),
        **_machine_facts(notes),
        **_code_facts(provenance, places),
        "notes": notes,
    }
    write_whole(provenance / PROVENANCE_FILE, json_text(facts, indent=1))
    return provenance


def _machine_facts(notes: list[str]) -> dict[str, Any]:
    def or_none(name: str, collect: Callable[[], Any], instead: Any = None) -> Any:
        try:
            return collect()
        except Exception as error:
            notes.append(f"{name}: {shown(mask_text(str(error)))}")
            return instead

    packages = or_none("packages", machine.packages, {})
    return {
        "working_directory": or_none("working directory", lambda: shown(str(Path.cwd()))),
        "python": or_none("python", machine.python),
        "host": or_none("host", machine.host),
        "gpus": or_none("gpus", machine.gpus, []),
        "environment": or_none("environment", machine.variables, {}),
        "ray": packages.get("ray"),
        "packages": packages,
    }


def _code_facts(provenance: Path, places: Mapping[str, Path]) -> dict[str, Any]:
    git = Git()
    labels: dict[Path, list[str]] = {}
    outside: dict[str, dict[str, str]] = {}
    for label, place in places.items():
        try:
            labels.setdefault(find_root(git, place), []).append(label)
        except Exception as error:
            outside[label] = {"path": shown(str(place)), "note": shown(str(error))}
    states = [_keep_repository(provenance, git, *item) for item in labels.items()]
    return {"repositories": states, "outside_of_repositories": outside}


def _keep_repository(provenance: Path, git: Git, root: Path, labels: list[str]) -> dict[str, Any]:
    reader = RepositoryReader(git, root, labels)
    diff = ""
    try:
        diff = reader.read()
    except Exception as error:
        reader.state.notes.append(f"{type(error).__name__}: {shown(str(error))}")
    if diff:
        file = _unused(provenance, labels[0])
        file.write_bytes(diff.encode("utf-8", "surrogateescape"))
        reader.state.diff = file.name
    return asdict(reader.state)


def _unused(provenance: Path, label: str) -> Path:
    """Return a file for the diff of a repository that is named after its label."""
    name = re.sub(r"[^\w.-]+", "_", label).strip("._") or "repository"
    file = provenance / f"{name}.diff"
    number = 1
    while file.exists():
        number += 1
        file = provenance / f"{name}_{number}.diff"
    return file
