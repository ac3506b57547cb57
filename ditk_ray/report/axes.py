"""Parameters as axes: where a value has its place, whatever its type."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ditk_ray.report.values import is_number, key, show

_GOLDEN = 0.6180339887


@dataclass(frozen=True)
class Axis:
    """A parameter that varies.

    An axis of numbers has bounds and no `categories`. Any other has a category for each
    value, by its `key`, with the text that shows it.
    """

    name: str
    label: str
    lower: float = 0.0
    upper: float = 1.0
    is_log: bool = False
    categories: Mapping[str, str] | None = None

    def place(self, value: Any) -> float | None:
        """Return where a value is: a number itself, a category by its rank from 0."""
        if self.categories is not None:
            keys = list(self.categories)
            return keys.index(key(value)) if key(value) in keys else None
        return float(value) if is_number(value) else None

    def fraction(self, place: float, spread: float = 0.0) -> float:
        """Return a place as a fraction of the axis; a `spread` of ±0.5 keeps to its category."""
        if self.categories is not None:
            return (place + 0.5 + 0.5 * spread) / len(self.categories)
        if self.is_log:
            return math.log(place / self.lower) / math.log(self.upper / self.lower)
        return (place - self.lower) / (self.upper - self.lower)


def build_axes(
    trials: Iterable[Mapping[str, Any]], space: Mapping[str, Mapping[str, Any]]
) -> list[Axis]:
    """Return an axis for each parameter that has more than one value in these trials.

    `space` describes the parameters, as a record's job has it; it may be empty.
    """
    values: dict[str, list[Any]] = {}
    for params in trials:
        for name, value in params.items():
            values.setdefault(name, []).append(value)
    labels = short_names(values)
    return [
        _axis(name, labels[name], drawn, space.get(name, {}))
        for name, drawn in values.items()
        if len({key(value) for value in drawn}) > 1
    ]


def short_names(names: Iterable[str]) -> dict[str, str]:
    """Return for each dotted name the shortest end that no other name has."""
    names = list(names)
    ends = Counter(end for name in names for end in set(_ends(name)))
    return {name: next((end for end in _ends(name) if ends[end] == 1), name) for name in names}


def spread(index: int) -> float:
    """Return a number between -0.5 and 0.5 that is far from those of the neighbours."""
    return (index * _GOLDEN) % 1 - 0.5


def _ends(name: str) -> list[str]:
    parts = name.split(".")
    return [".".join(parts[-length:]) for length in range(1, len(parts) + 1)]


def _axis(name: str, label: str, drawn: Sequence[Any], description: Mapping[str, Any]) -> Axis:
    is_choice = description.get("kind") in ("choice", "grid")
    if is_choice or not all(is_number(value) for value in drawn):
        return Axis(name, label, categories=_categories(drawn, description.get("choices") or ()))
    known = [*drawn, *_bounds(description)]
    is_log = bool(description.get("log")) and min(known) > 0
    return Axis(name, label, float(min(known)), float(max(known)), is_log)


def _bounds(description: Mapping[str, Any]) -> list[float]:
    lower, upper = description.get("lower"), description.get("upper")
    last = 1 if description.get("kind") == "int" else 0  # Tune's integers end before the bound
    return [float(lower), float(upper) - last] if is_number(lower) and is_number(upper) else []


def _categories(drawn: Sequence[Any], choices: Sequence[Any]) -> dict[str, str]:
    """Return the values' texts by their keys: numbers by size, others as the space has them."""
    values = {key(value): value for value in (*choices, *drawn)}
    used = {key(value) for value in drawn}
    kept = {name: value for name, value in values.items() if name in used}
    if all(is_number(value) for value in kept.values()):
        kept = dict(sorted(kept.items(), key=lambda item: item[1]))
    elif not choices:
        kept = dict(sorted(kept.items(), key=lambda item: show(item[1])))
    times = Counter(show(value) for value in kept.values())
    return {
        name: show(value) if times[show(value)] == 1 else repr(value)
        for name, value in kept.items()
    }
