"""Which code ran, where and how: the few lines of it that a reader looks for first."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ditk_ray.config.quantities import show_bytes
from ditk_ray.provenance.snapshot import PROVENANCE_FILE, PROVENANCE_FOLDER
from ditk_ray.report.values import is_number

Rows = list[tuple[str, str]]


def provenance_rows(folder: Path) -> Rows:
    """Return what was written down about a sweep's origin; nothing if nothing was."""
    try:
        data = json.loads((folder / PROVENANCE_FOLDER / PROVENANCE_FILE).read_text("utf-8"))
        return [(name, value) for name, value in _rows(data) if value]
    except (OSError, ValueError, AttributeError, TypeError):  # or not by a version like this
        return []


def _rows(data: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield "command", shlex.join(data.get("command") or [])
    yield "in", str(data.get("working_directory") or "")
    for repository in data.get("repositories") or []:
        yield f"code of {' and '.join(repository['labels'])}", _commit(repository)
    python = data.get("python") or {}
    yield "Python", f"{python.get('version', '')} {python.get('executable', '')}".strip()
    yield "Ray", str(data.get("ray") or "")
    yield "DI-engine", str((data.get("packages") or {}).get("DI-engine") or "")
    yield "host", _host(data.get("host") or {})
    yield "GPUs", ", ".join(str(gpu.get("name")) for gpu in data.get("gpus") or [])


def _commit(repository: Mapping[str, Any]) -> str:
    commit = str(repository.get("commit") or "no commit")[:12]
    branch = f" on {repository['branch']}" if repository.get("branch") else ""
    diff = repository.get("diff")
    changes = ", with changes" if repository.get("is_dirty") else ""
    return f"{commit}{branch}{changes}{f' ({PROVENANCE_FOLDER}/{diff})' if diff else ''}"


def _host(host: Mapping[str, Any]) -> str:
    memory = host.get("memory")
    parts = [
        host.get("name"),
        f"{host['cpus']} CPUs" if host.get("cpus") else None,
        show_bytes(memory) if is_number(memory) else None,
        host.get("platform"),
    ]
    return ", ".join(str(part) for part in parts if part)
