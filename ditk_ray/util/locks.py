"""Locks on files, which end with the process that holds them, whatever ends it."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

LOCK_FILE = ".running"
_NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP)


class HeldError(Exception):
    """Another process holds the lock."""


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Wait for a lock among all processes that name the same file, and hold it."""
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def held(path: Path) -> Iterator[None]:
    """Hold a lock on a file; it is let go with the process. Raises `HeldError`."""
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)  # not inherited by other programs
    try:
        for left in reversed(range(5)):
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                if not left:
                    raise HeldError(str(path)) from error
                time.sleep(0.05)  # another process may only be checking whether it is held
            except OSError as error:
                if error.errno not in _NO_LOCKS:
                    raise
                break  # a file system without locks: nobody can know
        yield
    finally:
        os.close(file)


def sweep_lock(folder: Path) -> contextlib.AbstractContextManager[None]:
    """Return the lock that a sweep's own process holds while it runs."""
    return held(folder / LOCK_FILE)


def wait_until_free(folder: Path, seconds: float) -> bool:
    """Wait until no process runs the sweep, at most this many seconds; return whether none does."""
    until = time.monotonic() + seconds
    while is_running(folder):
        if time.monotonic() >= until:
            return False
        time.sleep(0.5)
    return True


def is_running(folder: Path) -> bool:
    if not (folder / LOCK_FILE).exists():
        return False
    file = os.open(folder / LOCK_FILE, os.O_RDONLY)
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return False
    except BlockingIOError:
        return True
    except OSError:  # a file system without locks: nobody can know
        return False
    finally:
        os.close(file)
