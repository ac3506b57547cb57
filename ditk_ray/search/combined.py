"""Putting several stoppers together, in a `JobCfg`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True)
class Combined:
    """Stoppers of any kind, of which one or all have to agree to end a trial or the sweep."""

    kind: Literal["any", "all"]
    parts: tuple[Any, ...]

    def __str__(self) -> str:
        return f"{self.kind}_of({', '.join(show_stopper(part) for part in self.parts)})"


def any_of(*stoppers: Any) -> Combined:
    """End a trial, or the sweep, as soon as one of the stoppers would.

    Each is a rule such as `"eval_value>=195"`, a dict, a function of `(trial_id, result)`,
    a Ray Tune `Stopper`, or again several put together.
    """
    return Combined("any", stoppers)


def all_of(*stoppers: Any) -> Combined:
    """End a trial, or the sweep, only when all of the stoppers would at the same time."""
    return Combined("all", stoppers)


def show_stopper(given: Any) -> str:
    """Write a stopper of any kind shortly."""
    if isinstance(given, (list, tuple)):
        return str(any_of(*given))
    if isinstance(given, (str, dict, Combined)):
        return str(given)
    return str(getattr(given, "__name__", type(given).__name__))
