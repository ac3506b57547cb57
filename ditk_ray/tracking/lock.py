"""Knowing whether a sweep's own process is alive, whatever ended it."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

LOCK_FILE = ".running"
_TRIES = 5
_NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP)
_PAUSE = 0.05
_LOOK_SECONDS = 0.5


class HeldError(Exception):
    """Another process holds the lock."""


@contextlib.contextmanager
def held(path: Path) -> Iterator[None]:
    """Hold a lock on a file; it is let go with the process. Raises `HeldError`."""
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)  # not inherited by other programs
    try:
        for left in reversed(range(_TRIES)):
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                if not left:
                    raise HeldError(str(path)) from error
                time.sleep(_PAUSE)  # somebody may only be looking whether it is held
            except OSError as error:
                if error.errno not in _NO_LOCKS:
                    raise
                break  # a file system without locks: nobody can tell
        yield
    finally:
        os.close(file)


def sweep_lock(folder: Path) -> contextlib.AbstractContextManager[None]:
    """Return the lock that a sweep's own process holds while it runs."""
    return held(folder / LOCK_FILE)


def wait_until_free(folder: Path, seconds: float, waits: Callable[[], None]) -> bool:
    """Wait until no process runs the sweep, so many seconds at most; say whether none does.

    `waits` is called once, if there is anything to wait for.
    """
    until = time.monotonic() + seconds
    has_told = False
    while is_running(folder):
        if time.monotonic() >= until:
            return False
        if not has_told:
            waits()
        has_told = True
        time.sleep(_LOOK_SECONDS)
    return True


def is_running(folder: Path) -> bool:
    """Say whether a process runs the sweep now."""
    if not (folder / LOCK_FILE).exists():
        return False
    file = os.open(folder / LOCK_FILE, os.O_RDONLY)
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return False
    except BlockingIOError:
        return True
    except OSError:  # a file system without locks: nobody can tell
        return False
    finally:
        os.close(file)
