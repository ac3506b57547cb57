"""Files with a JSON object on each line, which whoever appends to them may be killed at."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ditk_ray.config.jsonable import json_text

Row = dict[str, Any]


def append_rows(path: Path, *rows: Mapping[str, Any]) -> None:
    """Add lines to a file, all of them or none; raises OSError.

    A line that was cut short before is left to itself.
    """
    text = "".join(f"{json_text(row)}\n" for row in rows)
    with path.open("ab") as file:
        size = file.tell()
        try:
            file.write(text.encode() if _ends_with_a_line(path, size) else b"\n" + text.encode())
            file.flush()
        except OSError:
            with contextlib.suppress(OSError):
                file.truncate(size)
            raise


def read_rows(path: Path) -> list[Row]:
    """Return the whole lines of a file; none if there is no file."""
    try:
        lines = path.read_text(errors="replace").splitlines()
    except OSError:
        return []
    return [row for line in lines if (row := _parsed(line)) is not None]


def _parsed(line: str) -> Row | None:
    try:
        row = json.loads(line)
    except ValueError:
        return None
    return row if isinstance(row, dict) else None


def _ends_with_a_line(path: Path, size: int) -> bool:
    if size == 0:
        return True
    with path.open("rb") as file:
        file.seek(size - 1)
        return file.read(1) == b"\n"
