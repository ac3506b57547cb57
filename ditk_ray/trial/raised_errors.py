"""Telling what a training failed of by what it raised.

This module also runs in pods, where neither this package nor a new Python may be.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator

_FULL = (errno.ENOSPC, errno.EDQUOT)
_NO_MEMORY_TEXTS = ("out of memory", "allocate memory", "not enough memory", "DefaultCPUAllocator")
_FULL_TEXTS = (
    "No space left on device",
    "Disk quota exceeded",
    # torch does not say more of a file that it cannot write to its end.
    "basic_ios::clear: iostream error",
    "PytorchStreamWriter failed writing file",
)


def failure_of(error: BaseException) -> str:
    """Return `disk_full`, `out_of_memory` or `bug`.

    Causes are looked at too: an environment in a process of its own has its errors
    raised again by others.
    """
    for each in _chain(error):
        if _is_disk_full(each):
            return "disk_full"
        if _is_out_of_memory(each):
            return "out_of_memory"
    return "bug"


def is_disk_full(error: BaseException) -> bool:
    """Say whether a disk without room is behind an error."""
    return any(_is_disk_full(each) for each in _chain(error))


def is_divergence(error: BaseException) -> bool:
    """Say whether a training raised because its policy's outputs are no numbers any more.

    That is how torch's distributions refuse the outputs of a network that diverged.
    """
    text = str(error)
    return isinstance(error, ValueError) and "found invalid values" in text and "nan" in text


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        current = current.__cause__ or current.__context__


def _is_disk_full(error: BaseException) -> bool:
    if isinstance(error, OSError):
        return error.errno in _FULL
    return isinstance(error, RuntimeError) and any(text in str(error) for text in _FULL_TEXTS)


def _is_out_of_memory(error: BaseException) -> bool:
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    texts = (*_NO_MEMORY_TEXTS, "MemoryError")
    return isinstance(error, RuntimeError) and any(text in str(error) for text in texts)
