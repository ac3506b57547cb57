"""Writing files that are never seen half-written."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

_FOR_ALL = 0o666
_FOR_THE_OWNER = 0o600


def write_whole(path: Path, text: str) -> None:
    """Write a text so that a reader sees the old one or the new, never a part."""
    replace_file(path, text.encode())


def write_private(path: Path, text: str) -> None:
    """Write a text as `write_whole` does, into a file that only its owner can read."""
    replace_file(path, text.encode(), _FOR_THE_OWNER)


def replace_file(path: Path, data: bytes, mode: int = _FOR_ALL) -> None:
    """Write a file so that a reader sees the old content or the new, never a part.

    Of several who write at once, the last one's content stays, whole. `mode` is what the user's
    umask takes rights from. If it fails, nothing is left behind.
    """
    # A file of one's own: nobody else writes to it, or has been let in before.
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
