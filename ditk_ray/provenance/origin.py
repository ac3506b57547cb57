"""Where shipped code comes from: the repository that a submitted job's copy no longer has.

Whoever ships code adds the files of `describe_origin` to it; whoever runs it finds them in
the working directory, and writes them down as if it were there.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ditk_ray
from ditk_ray.config.jsonable import json_text
from ditk_ray.provenance.code_state import code_facts, unused_diff

ORIGIN_FOLDER = ".ditk_ray_origin"
_FILE = "origin.json"
_WORKING_DIRECTORY = "working directory"


def describe_origin(folder: Path) -> dict[str, bytes]:
    """Return the files that tell a copy of `folder` which commit and changes it is of."""
    places = {_WORKING_DIRECTORY: folder, "ditk_ray": Path(ditk_ray.__file__)}
    with tempfile.TemporaryDirectory() as kept:
        facts = code_facts(Path(kept), places)
        files = {f"{ORIGIN_FOLDER}/{diff.name}": diff.read_bytes() for diff in Path(kept).iterdir()}
    told = {**facts, "folder": str(folder)}
    return {f"{ORIGIN_FOLDER}/{_FILE}": json_text(told, indent=1).encode(), **files}


def facts_with_origin(provenance: Path, folder: Path, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is known of code, with what the copy in `folder` tells of its origin.

    Its diffs are copied into the folder `provenance`. Places of the copy, which are in no
    repository here, are those of the origin. Without a readable origin nothing changes.
    """
    try:
        told = json.loads((folder / ORIGIN_FOLDER / _FILE).read_text("utf-8"))
        repositories = [dict(one) for one in told["repositories"]]
        origin = str(told["folder"])
    except (OSError, ValueError, KeyError, TypeError):
        return dict(facts)
    for repository in repositories:
        repository["diff"] = _copied(provenance, folder, repository.get("diff"))
    covered = {label for one in repositories for label in one.get("labels") or []}
    outside = {
        label: place
        for label, place in facts["outside_of_repositories"].items()
        if label not in covered and not _is_in(place["path"], folder)
    }
    return {
        "repositories": [*facts["repositories"], *repositories],
        "outside_of_repositories": {**told.get("outside_of_repositories", {}), **outside},
        "submitted_from": origin,
    }


def _copied(provenance: Path, folder: Path, name: Any) -> str | None:
    """Copy a diff, and return its name here."""
    if not isinstance(name, str):
        return None
    source = folder / ORIGIN_FOLDER / Path(name).name
    try:
        data = source.read_bytes()
    except OSError:
        return None
    file = unused_diff(provenance, source.stem)
    file.write_bytes(data)
    return file.name


def _is_in(path: str, folder: Path) -> bool:
    return Path(path).resolve().is_relative_to(folder.resolve())
