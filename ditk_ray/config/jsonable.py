"""Values as JSON that every reader takes."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any


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
    """Return a value as JSON."""
    return json.dumps(jsonable(value), indent=indent, default=str)


def plain(value: Any) -> Any:
    """Return numpy's values as Python's, the rest as text; for `json.dumps(default=...)`."""
    return value.tolist() if hasattr(value, "tolist") else str(value)
