"""Writing files that are never seen half-written."""

from __future__ import annotations

import os
from pathlib import Path


def write_whole(path: Path, text: str) -> None:
    """Write a file so that a reader sees the old text or the new, never a part."""
    new = path.with_name(f".{path.name}.new")
    with new.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
