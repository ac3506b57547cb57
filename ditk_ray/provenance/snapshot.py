"""Where a sweep comes from: code, command, Python, packages, machine.

Kept in `provenance/` beside the sweep, for a reader a month later. Secrets are
masked as far as they can be recognised.
"""

from __future__ import annotations

import contextlib
import csv
import importlib.metadata
import json
import os
import platform
import shutil
import socket
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import ditk_ray
from ditk_ray.provenance.git import code_facts, run_limited, shown, unused_diff
from ditk_ray.provenance.secrets import mask_arguments, mask_text
from ditk_ray.util.files import write_whole
from ditk_ray.util.plain import json_text

VERSION = 1
PROVENANCE_FOLDER = "provenance"
PROVENANCE_FILE = "provenance.json"

GPU_SECONDS = 5.0
_GPU_FIELDS = ("index", "name", "uuid", "memory.total", "driver_version")
_GPU_BYTES = 64 * 1024
_VARIABLES = (
    *("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "CUBLAS_WORKSPACE_CONFIG"),
    *("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"),
    *("PYTHONHASHSEED", "PYTHONPATH", "VIRTUAL_ENV", "CONDA_DEFAULT_ENV"),
    *("RAY_ADDRESS", "RAY_NAMESPACE", "SLURM_JOB_ID", "SLURM_JOB_NODELIST", "SLURM_JOB_PARTITION"),
)
ORIGIN_FOLDER = ".ditk_ray_origin"
_FILE = "origin.json"
_WORKING_DIRECTORY = "working directory"


def write_provenance(
    folder: Path,
    places: Mapping[str, Path],
    resources: Mapping[str, Any],
    command: Sequence[str],
) -> Path:
    """Write down what a sweep runs and where, and return the folder with it.

    `places` are files or folders of code by a label; the repositories that hold
    them are found and described, each with a `.diff` if it has changes. What an
    earlier call wrote is replaced. Code that was shipped here has its origin written down. What
    cannot be found out becomes a note in `provenance.json`; only an `OSError` of writing is
    raised, as for a full disk.
    """
    provenance = folder / PROVENANCE_FOLDER
    provenance.mkdir(parents=True, exist_ok=True)
    for old in provenance.glob("*.diff"):
        old.unlink()
    facts = {
        "version": VERSION,
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": mask_arguments([shown(argument) for argument in command]),
        "resources": dict(resources),
        **_machine_facts(),
        **facts_with_origin(provenance, Path(), code_facts(provenance, places)),
    }
    write_whole(provenance / PROVENANCE_FILE, json_text(facts, indent=1))
    return provenance


def _machine_facts() -> dict[str, Any]:
    asked: dict[str, tuple[Callable[[], Any], Any]] = {
        "working_directory": (lambda: shown(str(Path.cwd())), None),
        "host": (_host, None),
        "gpus": (gpus, []),
        "packages": (packages, {}),
    }
    facts: dict[str, Any] = {}
    notes = []
    for name, (ask, instead) in asked.items():
        try:
            facts[name] = ask()
        except Exception as error:  # whatever is odd about the machine: the sweep matters more
            facts[name] = instead
            notes.append(f"{name.replace('_', ' ')}: {shown(mask_text(str(error)))}")
    python = {"version": platform.python_version(), "executable": sys.executable}
    return {
        **facts,
        "python": {**python, "implementation": platform.python_implementation()},
        "environment": {
            name: mask_text(os.environ[name]) for name in _VARIABLES if name in os.environ
        },
        "ray": facts["packages"].get("ray"),
        "notes": notes,
    }


def _host() -> dict[str, Any]:
    return {
        "name": socket.gethostname(),
        "platform": platform.platform(),
        "cpus": os.cpu_count(),
        "usable_cpus": len(os.sched_getaffinity(0)),
        "memory": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
    }


def gpus() -> list[dict[str, str]]:
    """Return what `nvidia-smi` says of each GPU; nothing if there is no such command.

    Raises `CommandFailedError` if there is one and it fails, or takes too long.
    """
    program = shutil.which("nvidia-smi")
    if program is None:
        return []
    command = [program, f"--query-gpu={','.join(_GPU_FIELDS)}", "--format=csv,noheader"]
    printed = run_limited(command, _GPU_BYTES, GPU_SECONDS)
    lines = printed.decode("utf-8", "backslashreplace").splitlines()
    rows = csv.reader(lines, skipinitialspace=True)
    return [dict(zip(_GPU_FIELDS, row, strict=False)) for row in rows if row]


def packages() -> dict[str, str]:
    """Return the version of each installed distribution; none is imported."""
    found: dict[str, str] = {}
    for distribution in importlib.metadata.distributions():
        with contextlib.suppress(Exception):  # one that is half removed
            if distribution.name:
                found.setdefault(distribution.name, distribution.version)
    return dict(sorted(found.items(), key=lambda item: item[0].lower()))


def describe_origin(folder: Path) -> dict[str, bytes]:
    """Return the files that say which commit and changes a copy of `folder` comes from."""
    places = {_WORKING_DIRECTORY: folder, "ditk_ray": Path(ditk_ray.__file__)}
    with tempfile.TemporaryDirectory() as kept:
        facts = code_facts(Path(kept), places)
        files = {f"{ORIGIN_FOLDER}/{diff.name}": diff.read_bytes() for diff in Path(kept).iterdir()}
    origin = {**facts, "folder": str(folder)}
    return {f"{ORIGIN_FOLDER}/{_FILE}": json_text(origin, indent=1).encode(), **files}


def facts_with_origin(provenance: Path, folder: Path, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is known of code, with what the copy in `folder` says of its origin.

    Its diffs are copied into the folder `provenance`. Places of the copy, which are in no
    repository here, are those of the origin. Without a readable origin nothing changes.
    """
    try:
        origin = json.loads((folder / ORIGIN_FOLDER / _FILE).read_text("utf-8"))
        repositories = [dict(one) for one in origin["repositories"]]
        submitted_from = str(origin["folder"])
    except (OSError, ValueError, KeyError, TypeError):
        return dict(facts)
    for repository in repositories:
        source = folder / ORIGIN_FOLDER / Path(str(repository.get("diff"))).name
        repository["diff"] = None
        if source.is_file():
            copy = shutil.copyfile(source, unused_diff(provenance, source.stem))
            repository["diff"] = copy.name
    covered = {label for one in repositories for label in one.get("labels") or []}
    outside = {
        label: place
        for label, place in facts["outside_of_repositories"].items()
        if label not in covered
        and not Path(place["path"]).resolve().is_relative_to(folder.resolve())
    }
    return {
        "repositories": [*facts["repositories"], *repositories],
        "outside_of_repositories": {**origin.get("outside_of_repositories", {}), **outside},
        "submitted_from": submitted_from,
    }
