"""Writing a config as a DI-engine config file that runs with plain `python`."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from ditk_ray.config import dotted
from ditk_ray.config.engine_config import EngineConfig, load_engine_config
from ditk_ray.config.entries import entry_arguments, entry_function_name

_WIDTH = 96


@dataclass(frozen=True)
class EntryCall:
    """How a config is trained: the entry and the arguments besides the config.

    `home` is the file that defines the entry if it is a user's own function.
    """

    entry: str | Callable[..., Any]
    arguments: Mapping[str, Any] = field(default_factory=dict)
    home: str | None = None


class _NotLiteralError(ValueError):
    """A value has no Python literal."""


def render_config(config: EngineConfig, call: EntryCall, title: str) -> str:
    """Return the text of a config file with a main block that trains it.

    Values are written out as literals, so that the file stands alone. A config
    that holds something without a literal (a function, say) is written as its
    source file plus the values that differ; one that cannot be written at all
    becomes a file that says so.
    """
    for body in (_literal_body, _source_body):
        with contextlib.suppress(_NotLiteralError):
            return f'"""{title}"""\n\n{body(config)}\n\n{_main_block(call)}'
    return f'"""{title}"""\n\nraise SystemExit({_UNWRITABLE!r})\n'


def _literal_body(config: EngineConfig) -> str:
    return "\n\n".join(
        [
            "from easydict import EasyDict",
            f"main_config = EasyDict({literal(config.main)})",
            f"create_config = EasyDict({literal(config.create)})",
        ]
    )


def _source_body(config: EngineConfig) -> str:
    if config.source is None:
        raise _NotLiteralError("there is no source file to refer to")
    base = load_engine_config(Path(config.source))
    lines = [
        "import runpy",
        "",
        "from easydict import EasyDict  # noqa: F401",
        "",
        f"_base = runpy.run_path({config.source!r})",
        'main_config = _base["main_config"]',
        'create_config = _base["create_config"]',
    ]
    lines += _differences("main_config", base.main, config.main)
    lines += _differences("create_config", base.create, config.create)
    return "\n".join(lines)


def _differences(name: str, base: dotted.Tree, tree: dotted.Tree) -> list[str]:
    lines = []
    for key, value in tree.items():
        place = f"{name}[{key!r}]"
        if key not in base:
            lines.append(f"{place} = {literal(value)}")
        elif isinstance(value, dict) and isinstance(base[key], dict):
            lines += _differences(place, base[key], value)
        elif _text(value) != _text(base[key]):
            lines.append(f"{place} = {literal(value)}")
    return lines


def _text(value: Any) -> str:
    """Return what tells two values apart, also those of two runs of the same file."""
    try:
        return literal(value)
    except _NotLiteralError:
        if isinstance(value, (list, tuple)):
            return f"{type(value).__name__}({', '.join(_text(item) for item in value)})"
        if isinstance(value, dict):
            return "{" + ", ".join(f"{key!r}: {_text(item)}" for key, item in value.items()) + "}"
        return f"{type(value).__name__} {getattr(value, '__qualname__', type(value).__qualname__)}"


def _main_block(call: EntryCall) -> str:
    """Return the function that trains the config with a seed, and a call of it."""
    given = entry_arguments(call.entry, call.arguments)
    if isinstance(call.entry, str):
        function = entry_function_name(call.entry)
        how = f"from ding.entry import {function}"
    else:
        function = getattr(call.entry, "__qualname__", "")
        if not function.isidentifier():
            return f'if __name__ == "__main__":\n    raise SystemExit({_NAMELESS!r})\n'
        how = _from_file(function, call.home) if call.home else _from_module(call.entry)
    parameter = f"seed={_argument(given.pop('seed'))}" if "seed" in given else ""
    arguments = [parameter and "seed=seed"]
    arguments += [f"{key}={_argument(value)}" for key, value in given.items()]
    shown = "".join(f", {item}" for item in arguments if item)
    return (
        f"def train({parameter}):\n"
        f"    {how}\n\n"
        f"    return {function}((main_config, create_config){shown})\n\n\n"
        'if __name__ == "__main__":\n'
        "    train()\n"
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


def _from_module(function: Callable[..., Any]) -> str:
    return f"from {function.__module__} import {function.__name__}"


_UNWRITABLE = "this config holds values that cannot be written as Python"
_NAMELESS = "this config is trained by a function without a name of its own: call that with it"


def _argument(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"EasyDict({literal(dict(value))})"
    if isinstance(value, tuple):
        return "(" + "".join(f"{_argument(item)}, " for item in value) + ")"
    return literal(value)


def literal(value: Any, indent: str = "") -> str:
    """Return Python source for `value`, broken into lines where it is long."""
    flat = _flat(value)
    if len(indent) + len(flat) <= _WIDTH or not value:
        return flat
    inner = indent + "    "
    if isinstance(value, dict):
        rows = [f"{inner}{_flat(key)}: {literal(item, inner)},\n" for key, item in value.items()]
        return "{\n" + "".join(rows) + indent + "}"
    if isinstance(value, (list, tuple)):
        opening, closing = "[]" if isinstance(value, list) else "()"
        rows = [f"{inner}{literal(item, inner)},\n" for item in value]
        return f"{opening}\n{''.join(rows)}{indent}{closing}"
    return flat


def _flat(value: Any) -> str:
    if hasattr(value, "item") and getattr(value, "shape", None) == ():
        value = value.item()  # a numpy scalar, which a domain may have drawn
    if isinstance(value, Mapping):
        rows = (f"{_flat(key)}: {_flat(item)}" for key, item in value.items())
        return "{" + ", ".join(rows) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_flat(item) for item in value) + "]"
    if isinstance(value, tuple):
        return "(" + "".join(f"{_flat(item)}, " for item in value) + ")"
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    if isinstance(value, Enum) and isinstance(value, (int, float, str)):
        value = value.value
    if value is None or isinstance(value, (bool, int, float, str, bytes)):
        return repr(value)
    raise _NotLiteralError(f"{value!r} has no literal")
