"""Writing the script of a trial in a pod: its config, and what trains and reports it."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ditk_ray.config.config_file import EntryCall, literal_body, patched_source, train_function
from ditk_ray.config.engine_config import MAIN_ENTRY, EngineConfig
from ditk_ray.errors import BadConfigError, Problem
from ditk_ray.util.plain import NotLiteralError, literal
from ditk_ray.util.python_file import FILE_MODULE_PREFIX

_EMBEDDED = {
    "outcome": "ditk_ray.trial.outcome",
    "hook": "ditk_ray.trial.evaluation_hook",
    "runner": "ditk_ray.dijob.pod_runner",
}
"""The modules whose text goes along, by their names in the script, each after those it imports."""

_MODULE = "ditk_ray_pod_"
_SOURCE_NAME = "ditk_ray_config"


def render_pod_script(config: EngineConfig, call: EntryCall, title: str) -> str:
    """Return the text of one file that trains a trial, and that `ding -c` takes as a config.

    Run by `python` it trains and reports. Imported it starts nothing; in a pod it then has
    the evaluations reported of whoever imported it. Raises `BadConfigError` for an entry
    or a config that cannot go into a file.
    """
    is_main = call.entry == MAIN_ENTRY
    if not is_main:
        _check_entry(call)
    body = _source_body(config) if is_main else _body(config)
    train = _MAIN_TRAIN % _file_name(config) if is_main else train_function(call)
    is_task = is_main or not isinstance(call.entry, str)
    parts = [f"{title!r}", _LOADER, body, train, _embedded(), _ENDING % is_task]
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


_LOADER = """import os as _os
import sys as _sys
import types as _types


def _module(name, text, file):
    if name not in _sys.modules:
        module = _types.ModuleType(name)
        module.__file__ = file
        _sys.modules[name] = module
        exec(compile(text, file, "exec"), module.__dict__)
    return _sys.modules[name]
"""

_MAIN_TRAIN = """def train():
    _outcome.run_as_main(_text, %r, __file__)
"""

_ENDING = """if __name__ == "__main__":
    _runner.run(train, %s)
elif "DITK_RAY_TRIAL" in _os.environ and not hasattr(_runner, "speaker"):
    _runner.speaker = _runner.install(True)
"""


def _embedded() -> str:
    parts = ["# From here on: how it is trained and reported."]
    for name, module in _EMBEDDED.items():
        found = importlib.util.find_spec(module)
        assert found is not None and found.origin is not None
        text = Path(found.origin).read_text(encoding="utf-8")
        for other, imported in _EMBEDDED.items():
            text = text.replace(f"from {imported} import", f"from {_MODULE}{other} import")
        file = Path(found.origin).name
        parts.append(f"_{name} = _module({_MODULE + name!r}, {_quoted(text)}, {file!r})")
    return "\n\n".join(parts)


def _quoted(text: str) -> str:
    is_plain = "'''" not in text and not text.endswith(("\\", "'"))
    return f"r'''{text}'''" if is_plain else repr(text)


def _body(config: EngineConfig) -> str:
    try:
        system = "" if config.system is None else f"EasyDict({literal(config.system)})"
        return literal_body(config) + (system and f"\n\nsystem_config = {system}")
    except NotLiteralError:
        return _source_body(config)


def _source_body(config: EngineConfig) -> str:
    if config.source is None:
        what = "holds values that cannot be written as Python, and comes from no file"
        raise BadConfigError(Problem("config", what, "keep it in a file of its own"))
    try:
        text = patched_source(config, f"The config's own file, {_file_name(config)}.")
    except NotLiteralError as error:
        what = f"a value that differs from the file's cannot be written as Python: {error}"
        raise BadConfigError(Problem(config.source, what)) from error
    lines = [
        "from easydict import EasyDict",
        "",
        f"_text = {_quoted(text)}",
        f"_source = _module({_SOURCE_NAME!r}, _text, {_file_name(config)!r})",
        "main_config, create_config = _source.main_config, _source.create_config",
    ]
    if config.system is not None:
        lines.append("system_config = _source.system_config")
    return "\n".join(lines)


def _file_name(config: EngineConfig) -> str:
    return Path(config.source or "").name


def _check_entry(call: EntryCall) -> None:
    if isinstance(call.entry, str):
        return
    reason = _why_not_importable(call.entry, call.home)
    if reason:
        hint = "put it into a package that the image has, or use an entry of DI-engine by name"
        raise BadConfigError(Problem("entry", f"{reason}; a pod cannot import it", hint))


def _why_not_importable(function: Callable[..., Any], home: str | None) -> str:
    name = getattr(function, "__qualname__", "")
    module = getattr(function, "__module__", None) or ""
    if not name.isidentifier():
        return f"{name or function!r} has no name of its own in a module"
    if home or module == "__main__" or module.startswith(FILE_MODULE_PREFIX):
        return f"{name} is defined in {home or 'a file'}, which is not a module of a package"
    return ""
