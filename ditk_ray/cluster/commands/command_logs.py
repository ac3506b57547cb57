"""What wrapped commands print: a file for each, and lines that say whose they are."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from ditk_ray.errors import BadConfigError, Problem

_LONGEST_LINE = 64 * 1024
_STRANGE = re.compile(r"[^\w.+-]+")


class CommandLog:
    """The output of one command, written to its file as it comes and handed out by lines."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = path.open("wb", buffering=0)
        self._started = b""

    def take(self, data: bytes) -> Iterator[str]:
        """Keep some output and return the lines that it completes.

        What never ends its line, such as a progress bar, comes in long pieces.
        """
        self._file.write(data)
        *lines, self._started = (self._started + data).split(b"\n")
        yield from map(_readable, lines)
        if len(self._started) > _LONGEST_LINE:
            yield _readable(self._started)
            self._started = b""

    def close(self) -> Iterator[str]:
        """End the file, and return the last line if it was not ended."""
        self._file.close()
        if self._started:
            yield _readable(self._started)
            self._started = b""


def make_log_folder(wanted: Path | None) -> Path:
    """Return a new or empty folder for logs, by default one that is named after the time.

    Raises `BadConfigError` if there are files in it, or if it cannot be made.
    """
    folder = wanted or Path("ditk_ray_wrapped") / f"{datetime.now():%Y%m%d_%H%M%S_%f}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        is_empty = not any(folder.iterdir())
    except OSError as error:
        raise BadConfigError(Problem(f"--log_dir {folder}", str(error.strerror))) from None
    if not is_empty:
        hint = "give another folder: these logs are somebody's"
        raise BadConfigError(Problem(f"--log_dir {folder}", "is not empty", hint))
    return folder


def log_name(number: int, name: str) -> str:
    """Return the file name of a command's log: its number, and its name if it has one."""
    plain = _STRANGE.sub("_", name)
    return f"{number}.log" if name == str(number) else f"{number}_{plain}.log"


def _readable(line: bytes) -> str:
    return line.decode(errors="replace").rstrip("\r")
