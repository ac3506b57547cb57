"""The file with what a job's pods print."""

from __future__ import annotations

import contextlib
import logging
import threading
from pathlib import Path
from typing import TextIO

_log = logging.getLogger(__name__)


class JobLog:
    """Writes lines of any number of pods into one file, begun anew. For several threads.

    A file that cannot be written costs its lines and a warning, nothing else.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._file: TextIO | None = None
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("w", buffering=1, encoding="utf-8", errors="replace")
        except OSError as error:
            self._give_up(error)

    def write(self, line: str) -> None:
        """Append a line, at once."""
        with self._lock:
            if self._file is None:
                return
            try:
                self._file.write(line + "\n")
            except OSError as error:
                self._give_up(error)

    def close(self) -> None:
        """Close the file; lines that come later are dropped."""
        with self._lock, contextlib.suppress(OSError):
            if self._file is not None:
                self._file.close()
            self._file = None

    def _give_up(self, error: OSError) -> None:
        _log.warning("the log %s is not written any more: %s", self._path, error)
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.close()
        self._file = None
