"""Running the text of a file as `python FILE` runs the file.

This module also runs in pods, where neither this package nor a new Python may be.
"""

from __future__ import annotations

import linecache
import sys
import types


def run_as_main(text: str, name: str, file: str) -> None:
    """Run `text` as the module `__main__`, whose `__file__` is `file`.

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
