"""Values as the report shows them."""

from __future__ import annotations

import json
import math
from datetime import datetime
from typing import Any, TypeGuard

MISSING = "–"  # noqa: RUF001  a dash in a table is no hyphen


def is_number(value: Any) -> TypeGuard[float]:
    """Say whether a value has a place on an axis of numbers."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def show(value: Any) -> str:
    """Write a parameter or a metric shortly."""
    if not isinstance(value, float):
        return str(value)
    if value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return f"{value:.0f}" if 1e4 <= abs(value) < 1e15 else f"{value:.4g}"


def show_count(number: float) -> str:
    """Write a number of things, with its thousands apart."""
    return f"{number:,.0f}"


def count(number: int, thing: str) -> str:
    """Write how many of a thing there are."""
    return f"{show_count(number)} {thing}{'' if number == 1 else 's'}"


def key(value: Any) -> str:
    """Return a text that is the same for the same value: `1`, `"1"` and `true` differ."""
    return json.dumps(value, sort_keys=True, default=str)


def for_plotly(text: str) -> str:
    """Keep Plotly from reading a text as markup."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def script_json(value: Any) -> str:
    """Return JSON that cannot end the script element it stands in."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def seconds_between(started: str | None, ended: str | None) -> float | None:
    """Return the seconds between two moments of a record, if both are known."""
    if not started or not ended:
        return None
    span = datetime.fromisoformat(ended) - datetime.fromisoformat(started)
    return max(0.0, span.total_seconds())
