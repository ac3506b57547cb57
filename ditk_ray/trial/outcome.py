"""How a training ends, alike on a node and in a pod: what it leaves, and of what it failed.

This module also runs in pods, where neither this package nor a new Python may be.
"""

from __future__ import annotations

import errno
import linecache
import numbers
import sys
import traceback
import types
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

RESULT_FILE = "result.pkl"
"""What DI-engine pickles at the end of a training."""

_ERROR_NUMBERS = {
    errno.ENOSPC: "disk_full",
    errno.EDQUOT: "disk_full",
    errno.ENOMEM: "out_of_memory",
}
_ERROR_TEXTS = {
    "No space left on device": "disk_full",
    "Disk quota exceeded": "disk_full",
    # torch does not say more of a file that it cannot write to its end.
    "basic_ios::clear: iostream error": "disk_full",
    "PytorchStreamWriter failed writing file": "disk_full",
    "out of memory": "out_of_memory",
    "allocate memory": "out_of_memory",
    "not enough memory": "out_of_memory",
    "DefaultCPUAllocator": "out_of_memory",
    "MemoryError": "out_of_memory",
}


def run_as_main(text: str, name: str, file: str) -> None:
    """Run `text` as `python FILE` does: as the module `__main__`, whose `__file__` is `file`.

    Tracebacks show its lines, under `name`. Leaving it by `sys.exit()` without an error is
    a good end.
    """
    module, before = types.ModuleType("__main__"), sys.modules["__main__"]
    module.__file__ = file
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    sys.modules["__main__"] = module
    try:
        exec(compile(text, name, "exec"), module.__dict__)
    except SystemExit as error:
        if error.code not in (None, 0):
            raise
    finally:
        sys.modules["__main__"] = before


def newest_result(folder: Path) -> Path | None:
    """Return the file in which a training in `folder` left its result, if it did."""
    files = [*folder.glob(RESULT_FILE), *folder.glob(f"*/{RESULT_FILE}")]
    return max(files, key=lambda path: path.lstat().st_mtime, default=None)


def plain_numbers(returned: Any) -> dict[str, float]:
    """Return the numbers of a dict that a user's own entry gave back."""
    given = returned if isinstance(returned, Mapping) else {}
    return {str(key): float(item) for key, item in given.items() if isinstance(item, numbers.Real)}


def one_line(error: BaseException) -> str:
    """Return what was raised, and where, on one line."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    text = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {text}{place}" if text else f"{type(error).__name__}{place}"


def failure_of(error: BaseException) -> str:
    """Return `disk_full`, `out_of_memory` or `bug`.

    Causes are looked at too: an environment in a process of its own has its errors
    raised again by others.
    """
    return next((kind for kind in map(_known_kind, _chain(error)) if kind is not None), "bug")


def is_disk_full(error: BaseException) -> bool:
    return failure_of(error) == "disk_full"


def is_divergence(error: BaseException) -> bool:
    """Say whether a training raised because its policy's outputs are not numbers any more.

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


def _known_kind(error: BaseException) -> str | None:
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return "out_of_memory"
    if isinstance(error, OSError):
        return _ERROR_NUMBERS.get(error.errno or 0)
    if not isinstance(error, RuntimeError):
        return None
    return next((kind for text, kind in _ERROR_TEXTS.items() if text in str(error)), None)
