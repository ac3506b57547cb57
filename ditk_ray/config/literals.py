"""Writing values as Python source."""

from __future__ import annotations

import math
from collections.abc import Mapping
from enum import Enum
from typing import Any

from ditk_ray.config import dotted

_WIDTH = 96


class NotLiteralError(ValueError):
    """A value has no Python literal."""


def differences(name: str, base: dotted.Tree, tree: dotted.Tree) -> list[str]:
    """Return the assignments that turn `base`, called `name`, into `tree`."""
    lines = []
    for key, value in tree.items():
        place = f"{name}[{key!r}]"
        if key not in base:
            lines.append(f"{place} = {literal(value)}")
        elif isinstance(value, dict) and isinstance(base[key], dict):
            lines += differences(place, base[key], value)
        elif _text(value) != _text(base[key]):
            lines.append(f"{place} = {literal(value)}")
    return lines


def _text(value: Any) -> str:
    """Return what tells two values apart, also those of two runs of the same file."""
    try:
        return literal(value)
    except NotLiteralError:
        if isinstance(value, (list, tuple)):
            return f"{type(value).__name__}({', '.join(_text(item) for item in value)})"
        if isinstance(value, dict):
            return "{" + ", ".join(f"{key!r}: {_text(item)}" for key, item in value.items()) + "}"
        return f"{type(value).__name__} {getattr(value, '__qualname__', type(value).__qualname__)}"


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
    raise NotLiteralError(f"{value!r} has no literal")
