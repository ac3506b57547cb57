"""Values as plain JSON, and as Python source."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any

from ditk_ray.util import dotted


def jsonable(value: Any) -> Any:
    """Return the value without what JSON does not know: NaN and infinity become None.

    numpy's numbers and arrays become Python's; anything else is written as text.
    """
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {str(key): jsonable(item) for key, item in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, (str, bytes)):
        return [jsonable(item) for item in value]
    return value


def json_text(value: Any, indent: int | None = None) -> str:
    return json.dumps(jsonable(value), indent=indent, default=str)


def json_default(value: Any) -> Any:
    """Return numpy's values as Python's, the rest as text; for `json.dumps(default=...)`."""
    return value.tolist() if hasattr(value, "tolist") else str(value)


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
    try:
        return literal(value)
    except NotLiteralError:
        return re.sub(r" at 0x[0-9a-f]+", "", repr(value))


def literal(value: Any, indent: str = "") -> str:
    """Return Python source for `value`, broken into lines where it is long."""
    flat = _flat(value)
    if len(indent) + len(flat) <= 96 or not value:
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
