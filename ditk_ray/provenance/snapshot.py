"""Where a sweep comes from: code, command, Python, packages, machine.

Kept in `provenance/` beside the sweep, for a reader a month later. Secrets are
masked as far as they can be told from other text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ditk_ray.config.jsonable import json_text
from ditk_ray.config.whole_file import write_whole
from ditk_ray.provenance import machine
from ditk_ray.provenance.code_state import code_facts
from ditk_ray.provenance.masking import mask_arguments, mask_text
from ditk_ray.provenance.origin import facts_with_origin
from ditk_ray.provenance.repository import shown

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
    earlier call wrote is replaced. Of code that was shipped here, its origin is told. What
    cannot be found out becomes a note in `provenance.json`; only an `OSError` of writing is
    raised, as for a full disk.
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
        **facts_with_origin(provenance, Path(), code_facts(provenance, places)),
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
