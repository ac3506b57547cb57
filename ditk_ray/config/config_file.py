"""Writing a config as a DI-engine config file that runs with plain `python`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ditk_ray.config.engine_config import EngineConfig, reloaded
from ditk_ray.config.entries import MAIN_ENTRY, entry_arguments, entry_function_name
from ditk_ray.config.literals import NotLiteralError, differences, literal
from ditk_ray.config.main_block import patched_source


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
    source file plus the values that differ; one that cannot be written at all
    becomes a file that says so. With the entry `main` it is the source file with
    the values that differ, which its own main block trains.
    """
    if call.entry == MAIN_ENTRY:
        return _patched(config, title)
    for body in (literal_body, _source_body):
        with contextlib.suppress(NotLiteralError):
            return f'"""{title}"""\n\n{body(config)}\n\n{_main_block(call)}'
    return f'"""{title}"""\n\nraise SystemExit({_UNWRITABLE!r})\n'


def literal_body(config: EngineConfig) -> str:
    """Return the lines that define both dicts; raises `NotLiteralError`."""
    return "\n\n".join(
        [
            "from easydict import EasyDict",
            f"main_config = EasyDict({literal(config.main)})",
            f"create_config = EasyDict({literal(config.create)})",
        ]
    )


def _patched(config: EngineConfig, title: str) -> str:
    try:
        return patched_source(config, title, is_at_home=True)
    except NotLiteralError:
        return f"# {title}\n\nraise SystemExit({_UNWRITABLE!r})\n"


def _source_body(config: EngineConfig) -> str:
    if config.source is None:
        raise NotLiteralError("there is no source file to refer to")
    base = reloaded(config)
    module = f"{config.package}.{Path(config.source).stem}"
    lines = [
        "import runpy",
        "",
        "from easydict import EasyDict  # noqa: F401",
        "",
        f"_base = runpy.run_module({module!r})"
        if config.package
        else f"_base = runpy.run_path({config.source!r})",
        'main_config = _base["main_config"]',
        'create_config = _base["create_config"]',
    ]
    lines += differences("main_config", base.main, config.main)
    lines += differences("create_config", base.create, config.create)
    return "\n".join(lines)


def _main_block(call: EntryCall) -> str:
    """Return the function that trains the config with a seed, and a call of it."""
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
        function = _function_name(call.entry)
        how = _from_file(function, call.home) if call.home else _from_module(call.entry)
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
