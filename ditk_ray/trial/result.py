"""`result.pkl`, the pickled return of a DI-engine run: kept as a file, read as data.

It was written by a trial, which runs code that is not ours, and is read in the
process of a Ray actor, which has to survive whatever it finds.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ditk_ray.trial.pickled_numpy import NotPlainError
from ditk_ray.trial.plain_pickle import read_plain_pickle

MAX_BYTES = 1024 * 1024
"""Of a result that is read. Those of DI-engine have less than a kilobyte."""

MAX_KEPT_BYTES = 64 * 1024 * 1024
MAX_REASON = 200


class UnreadableResultError(Exception):
    """The file is not a pickle of plain values."""


def read_result(path: Path) -> Any:
    """Return the value pickled in `path`, with numpy's numbers as Python's.

    Raises `UnreadableResultError` for anything but plain data, for a file that
    is too large, and for what is no file, symbolic links among them. Nothing of
    the pickle is executed.
    """
    with _regular_file(path) as descriptor:
        data = _read(descriptor, MAX_BYTES)
    try:
        return read_plain_pickle(data)
    except NotPlainError as error:
        raise UnreadableResultError(_printable(str(error))) from error
    except Exception as error:
        reason = _printable(f"it is broken: {type(error).__name__}: {error}")
        raise UnreadableResultError(reason) from error


def keep_result(source: Path, kept: Path) -> None:
    """Copy a trial's result as it is to `kept`, whatever is there already.

    Raises `UnreadableResultError` for what is no file and for a file of more than
    `MAX_KEPT_BYTES`: a link would be followed by whoever uploads it later.
    """
    with _regular_file(source) as descriptor:
        data = _read(descriptor, MAX_KEPT_BYTES)
    new = kept.with_name(f".{kept.name}.new")
    new.unlink(missing_ok=True)
    with new.open("xb") as file:
        file.write(data)
    new.replace(kept)


@contextmanager
def _regular_file(path: Path) -> Iterator[int]:
    """Open a file; look at what was opened, since the path may mean another by now."""
    try:
        # Without O_NONBLOCK a pipe would wait for its writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        is_link = error.errno == errno.ELOOP
        reason = "it is a symbolic link" if is_link else f"it is no file: {error.strerror}"
        raise UnreadableResultError(reason) from error
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise UnreadableResultError("it is no file")
        yield descriptor
    finally:
        os.close(descriptor)


def _read(descriptor: int, limit: int) -> bytes:
    """Read a whole file; the limit is on what is read, for a size may change meanwhile."""
    try:
        with open(descriptor, "rb", closefd=False) as file:
            data = file.read(limit + 1)
    except OSError as error:
        raise UnreadableResultError(f"it cannot be read: {error.strerror}") from error
    if len(data) > limit:
        raise UnreadableResultError(f"it is larger than {limit} bytes")
    return data


def _printable(reason: str) -> str:
    """Return a reason that may quote the pickle, for a terminal: short and without escapes."""
    shown = reason if len(reason) <= MAX_REASON else f"{reason[:MAX_REASON]}..."
    return shown.encode("unicode_escape").decode("ascii")
