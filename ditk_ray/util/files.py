"""Files that are never seen half-written, and files of JSON lines that survive a kill."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

from ditk_ray.util.plain import json_text

Row = dict[str, Any]


def write_whole(path: Path, text: str) -> None:
    """Write a text so that a reader sees the old one or the new, never a part."""
    replace_file(path, text.encode())


def write_private(path: Path, text: str) -> None:
    """Write a text as `write_whole` does, into a file that only its owner can read."""
    replace_file(path, text.encode(), 0o600)


def replace_file(path: Path, data: bytes, mode: int = 0o666) -> None:
    """Write a file so that a reader sees the old content or the new, never a part.

    Of several who write at once, the last one's content stays, whole. `mode` is what the user's
    umask takes rights from. If it fails, nothing is left behind.
    """
    # A new file: nobody else writes to it, or has opened it before.
    new = path.with_name(f".{path.name}.{secrets.token_hex(8)}.new")
    file = os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb")
    try:
        with file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
    except BaseException:
        new.unlink(missing_ok=True)
        raise


def append_rows(path: Path, *rows: Mapping[str, Any]) -> None:
    """Add lines to a file, all of them or none; raises OSError."""
    with path.open("a+b", buffering=0) as file:
        append_lines(file, "".join(f"{json_text(row)}\n" for row in rows).encode())


def append_lines(file: BinaryIO, lines: bytes) -> None:
    """Add whole lines to an unbuffered file, all of them or none; raises OSError.

    A line that was cut short before is left to itself.
    """
    size = file.seek(0, os.SEEK_END)
    if size:
        file.seek(size - 1)
        lines = lines if file.read(1) == b"\n" else b"\n" + lines
    try:
        while lines:
            lines = lines[file.write(lines) :]
    except OSError:
        with contextlib.suppress(OSError):
            file.truncate(size)
        raise


def read_rows(path: Path) -> list[Row]:
    """Return the whole lines of a file; none if there is no file."""
    try:
        return rows_in(path.read_bytes())
    except OSError:
        return []


def rows_in(data: bytes) -> list[Row]:
    """Return the lines that are JSON objects: one that was cut short is passed over."""
    rows = []
    for line in data.splitlines():
        with contextlib.suppress(ValueError):
            rows.append(json.loads(line))
    return [row for row in rows if isinstance(row, dict)]
