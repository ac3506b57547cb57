"""Writing a config as a DI-engine config file that runs with plain `python`."""

from __future__ import annotations

import ast
import contextlib
import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ditk_ray.config.engine_config import (
    MAIN_ENTRY,
    EngineConfig,
    entry_arguments,
    entry_function_name,
    reloaded,
)
from ditk_ray.util.plain import NotLiteralError, differences, literal

_EASYDICT = "from easydict import EasyDict"
_UNWRITABLE = "this config holds values that cannot be written as Python"
_NAMELESS = "this config is trained by a function without a name of its own: call that with it"
_MAIN_TESTS = ("__name__ == '__main__'", "'__main__' == __name__")
VALUES_MARK = "# The values that differ from the file's:"


@dataclass(frozen=True)
class EntryCall:
    """How a config is trained: the entry and the arguments besides the config.

    `home` is the file that defines the entry if it is a user's own function.
    """

    entry: str | Callable[..., Any]
    arguments: Mapping[str, Any] = field(default_factory=dict)
    home: str | None = None


def render_config(config: EngineConfig, call: EntryCall, title: str) -> str:
    """Return the text of a config file with a main block that trains it.

    Values are written out as literals, so that the file stands alone. A config
    that holds something without a literal (a function, say) is written as its
    source file with the values that differ; one that cannot be written at all
    becomes a file that says so. With the entry `main` it is the source file with
    the values that differ, which its own main block trains.
    """
    try:
        if call.entry == MAIN_ENTRY:
            return patched_source(config, title, is_at_home=True)
        block = _main_block(call)
        with contextlib.suppress(NotLiteralError):
            return f'"""{title}"""\n\n{literal_body(config)}\n\n{block}'
        return patched_source(config, title, is_at_home=True, block=f"{_EASYDICT}\n\n{block}")
    except NotLiteralError:
        return f"# {title}\n\nraise SystemExit({_UNWRITABLE!r})\n"


def literal_body(config: EngineConfig) -> str:
    """Return the lines that define both dicts; raises `NotLiteralError`."""
    main, create = literal(config.main), literal(config.create)
    return f"{_EASYDICT}\n\nmain_config = EasyDict({main})\n\ncreate_config = EasyDict({create})"


def _main_block(call: EntryCall) -> str:
    if not isinstance(call.entry, str) and not _function_name(call.entry).isidentifier():
        return f'if __name__ == "__main__":\n    raise SystemExit({_NAMELESS!r})\n'
    return f'{train_function(call)}\n\nif __name__ == "__main__":\n    train()\n'


def _function_name(function: Callable[..., Any]) -> str:
    return str(getattr(function, "__qualname__", ""))


def train_function(call: EntryCall) -> str:
    """Return a function `train` that trains the config with a seed; the entry has a name."""
    given = entry_arguments(call.entry, call.arguments)
    if isinstance(call.entry, str):
        function = entry_function_name(call.entry)
        how = f"from ding.entry import {function}"
    else:
        function, module = _function_name(call.entry), call.entry.__module__
        how = _from_file(function, call.home) if call.home else f"from {module} import {function}"
    parameter = f"seed={_argument(given.pop('seed'))}" if "seed" in given else ""
    arguments = [parameter and "seed=seed"]
    arguments += [f"{key}={_argument(value)}" for key, value in given.items()]
    shown = "".join(f", {item}" for item in arguments if item)
    return (
        f"def train({parameter}):\n"
        f"    {how}\n\n"
        f"    return {function}((main_config, create_config){shown})\n"
    )


def _from_file(function: str, home: str) -> str:
    lines = (
        "import runpy",
        "import sys",
        "",
        f"sys.path.insert(0, {str(Path(home).parent)!r})",
        f"{function} = runpy.run_path({home!r})[{function!r}]",
    )
    return "\n    ".join(lines).replace("    \n", "\n")


def _argument(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"EasyDict({literal(dict(value))})"
    if isinstance(value, tuple):
        return "(" + "".join(f"{_argument(item)}, " for item in value) + ")"
    return literal(value)


def has_main_block(source: str) -> bool:
    return bool(_parted(source)[2])


def is_patched(text: str) -> bool:
    """Say whether a config file was written by `patched_source`."""
    return VALUES_MARK in text.splitlines()


def patched_source(
    config: EngineConfig, title: str, is_at_home: bool = False, block: str | None = None
) -> str:
    """Return the text of the config's own file, with the config's values before its main block.

    With `is_at_home` it is to run on a machine that has the file, and finds what the file
    imports from beside itself; a `block` stands in place of its own. Raises `NotLiteralError`
    for values that have no literal, or a config from no file, and `BadConfigError` if that
    cannot be loaded any more.
    """
    if config.source is None:
        raise NotLiteralError("there is no source file")
    base = reloaded(config)
    head, body, own_block = _parted(config.source)
    place = f"__package__ = {config.package!r}" if config.package else ""
    if is_at_home and not config.package:
        place = f"import sys\n\nsys.path.insert(0, {str(Path(config.source).parent)!r})"
    changes = [
        VALUES_MARK if block is None else "# The values of this trial:",
        *differences("main_config", base.main, config.main),
        *differences("create_config", base.create, config.create),
    ]
    parts = [f"# {title}\n{head}", place, body, "\n".join(changes), block or own_block]
    return "\n\n".join(part.strip("\n") for part in parts if part.strip()) + "\n"


def _parted(source: str) -> tuple[str, str, str]:
    """Return what has to come first in a file, what follows, and what its main block starts."""
    text = Path(source).read_text(encoding="utf-8")
    lines = list(io.StringIO(text))  # as the parser counts them
    first, last = 0, len(lines)
    for number, node in enumerate(ast.parse(text).body):
        is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        is_future = isinstance(node, ast.ImportFrom) and node.module == "__future__"
        if is_future or (number == 0 and is_text):
            first = node.end_lineno or 0
        elif isinstance(node, ast.If) and ast.unparse(node.test) in _MAIN_TESTS:
            last = node.lineno - 1
            break
    return "".join(lines[:first]), "".join(lines[first:last]), "".join(lines[last:])
