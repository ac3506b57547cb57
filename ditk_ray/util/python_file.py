"""Running a Python file for the names that it defines."""

from __future__ import annotations

import importlib.util
import re
import sys
import traceback
from pathlib import Path
from types import ModuleType

from ditk_ray.errors import BadConfigError, Problem
from ditk_ray.util.suggest import did_you_mean

FILE_MODULE_PREFIX = "_ditk_ray_file_"
"""How modules are called that were made of a file."""


def load_python_file(path: Path, package: str = "") -> ModuleType:
    """Execute the file at `path` as a fresh module and return it.

    The file's own folder is importable meanwhile, as it is with `python FILE`.
    The module is not left in `sys.modules`, so that loading a file twice gives
    two independent modules. Raises `BadConfigError` for a file that is missing
    or that fails, naming its line.
    """
    path = path.expanduser().resolve()
    if not path.is_file():
        raise BadConfigError(_missing(path))
    identifier = re.sub(r"\W", "_", path.stem)
    name = f"{package}.{path.stem}" if package else f"{FILE_MODULE_PREFIX}{identifier}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        hint = "give a file ending in .py"
        raise BadConfigError(Problem(str(path), "is not a Python file", hint))
    module = importlib.util.module_from_spec(spec)
    earlier = sys.modules.get(name)
    sys.modules[name] = module
    sys.path.insert(0, str(path.parent))
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise BadConfigError(_failed(path, error)) from error
    finally:
        sys.path.remove(str(path.parent))
        del sys.modules[name]
        if earlier is not None:
            sys.modules[name] = earlier
    return module


def _missing(path: Path) -> Problem:
    if not path.parent.is_dir():
        return Problem(str(path), "no such file", f"there is no folder {path.parent} either")
    siblings = [item.name for item in path.parent.glob("*.py")]
    return Problem(str(path), "no such file", did_you_mean(path.name, siblings))


def _failed(path: Path, error: BaseException) -> Problem:
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == str(path)]
    if isinstance(error, SyntaxError) and error.filename == str(path):
        lines = [error.lineno]
    where = f"{path}:{lines[-1]}" if lines else str(path)
    return Problem(where, f"{type(error).__name__}: {error}", "the file cannot be loaded")
