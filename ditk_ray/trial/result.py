"""Reading `result.pkl`, the pickled return of a DI-engine run, as data.

A pickle can run any code when it is loaded. This one was written by a trial,
which runs code that is not ours, so only plain values and the few constructors
that numpy needs for its numbers are let through.
"""

from __future__ import annotations

import io
import pickle
from pathlib import Path
from typing import Any

MAX_BYTES = 16 * 1024 * 1024
MAX_VALUES = 1_000_000

_ALLOWED = {
    ("numpy", "dtype"),
    ("numpy", "ndarray"),
    ("numpy.core.multiarray", "scalar"),
    ("numpy.core.multiarray", "_reconstruct"),
    ("numpy.core.numeric", "_frombuffer"),
    ("numpy._core.numeric", "_frombuffer"),
    ("numpy._core.multiarray", "scalar"),
    ("numpy._core.multiarray", "_reconstruct"),
}


class UnreadableResultError(Exception):
    """The file is not a pickle of plain values."""


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise UnreadableResultError(f"it wants to load {module}.{name}")
        return super().find_class(module, name)


def read_result(path: Path) -> Any:
    """Return the value pickled in `path`, with numpy's numbers as Python's.

    Raises `UnreadableResultError` for anything but plain data, for a file that
    is too large, and for a symbolic link.
    """
    if path.is_symlink():
        raise UnreadableResultError("it is a symbolic link")
    if not path.is_file():
        raise UnreadableResultError("it is no file")
    if path.stat().st_size > MAX_BYTES:
        raise UnreadableResultError(f"it is larger than {MAX_BYTES} bytes")
    try:
        return _Plain().of(_PlainUnpickler(io.BytesIO(path.read_bytes())).load())
    except UnreadableResultError:
        raise
    except Exception as error:
        raise UnreadableResultError(f"{type(error).__name__}: {error}") from error


class _Plain:
    """Turns values into Python's own, and counts: a small pickle may unfold to no end."""

    def __init__(self) -> None:
        self._left = MAX_VALUES

    def of(self, value: Any) -> Any:
        """Return `value` as plain data; numpy's numbers and arrays as Python's."""
        self._left -= value.size if hasattr(value, "tolist") else 1
        if self._left < 0:
            raise UnreadableResultError(f"it holds more than {MAX_VALUES} values")
        if hasattr(value, "tolist"):
            return value.tolist() if value.dtype != object else self.of(value.tolist())
        if isinstance(value, dict):
            return {str(key): self.of(item) for key, item in value.items()}
        if isinstance(value, (list, tuple, set, frozenset)):
            return [self.of(item) for item in value]
        return value
