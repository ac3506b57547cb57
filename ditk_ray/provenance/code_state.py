"""Which code there is: the repositories that hold it, each with its changes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ditk_ray.provenance.repository import Git, RepositoryReader, find_root, shown


def code_facts(provenance: Path, places: Mapping[str, Path]) -> dict[str, Any]:
    """Return the repositories that hold the places, and the places that none holds.

    The diffs of changed repositories are written into the folder `provenance`.
    """
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
        file = unused_diff(provenance, labels[0])
        file.write_bytes(diff.encode("utf-8", "surrogateescape"))
        reader.state.diff = file.name
    return asdict(reader.state)


def unused_diff(provenance: Path, label: str) -> Path:
    """Return a file for the diff of a repository that is named after its label."""
    name = re.sub(r"[^\w.-]+", "_", label).strip("._") or "repository"
    file = provenance / f"{name}.diff"
    number = 1
    while file.exists():
        number += 1
        file = provenance / f"{name}_{number}.diff"
    return file
