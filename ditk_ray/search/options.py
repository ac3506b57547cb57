"""Checking the settings of a searcher or scheduler against what it really takes."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from ditk_ray.config.nearest import did_you_mean
from ditk_ray.errors import BadConfigError, Problem

_PLAIN: Mapping[str, tuple[type, ...]] = {
    "int": (int,),
    "float": (int, float),
    "bool": (bool,),
    "str": (str,),
    "None": (type(None),),
    "NoneType": (type(None),),
}


def settings_of(*functions: Callable[..., Any], without: Collection[str] = ()) -> dict[str, str]:
    """Return the names of what the functions take, each with its annotation as text.

    `without` are those that the sweep itself sets.
    """
    return {
        item.name: _annotation(item)
        for function in functions
        for item in inspect.signature(function).parameters.values()
        if item.kind in (item.POSITIONAL_OR_KEYWORD, item.KEYWORD_ONLY)
        and item.name not in {"self", *without}
    }


def check_options(where: str, options: Mapping[str, Any], known: Mapping[str, str]) -> None:
    """Raise a `BadConfigError` that lists every option that is unknown or of a wrong type."""
    problems = list(_mistakes(where, options, known))
    if problems:
        raise BadConfigError(problems)


def _mistakes(
    where: str, options: Mapping[str, Any], known: Mapping[str, str]
) -> Iterator[Problem]:
    for name, value in options.items():
        if name not in known:
            hint = did_you_mean(name, known) if known else "it has no settings"
            yield Problem(f"{where}.{name}", "there is no such setting", hint)
        elif not _fits(value, known[name]):
            yield Problem(f"{where}.{name}", f"is {value!r}; it has to be: {known[name]}")


def _annotation(item: inspect.Parameter) -> str:
    if item.annotation is item.empty:
        return ""
    if isinstance(item.annotation, type):
        return item.annotation.__name__
    return str(item.annotation).replace("typing.", "").strip("'")


def _fits(value: Any, annotation: str) -> bool:
    """Say whether a value is of the stated type, where that is made of plain ones only."""
    optional = re.fullmatch(r"Optional\[(.*)\]", annotation)
    text = f"{optional[1]} | None" if optional else annotation
    union = re.fullmatch(r"Union\[(.*)\]", text)
    names = re.split(r"\s*[|,]\s*", union[1] if union else text)
    if not set(names) <= set(_PLAIN):
        return True
    if isinstance(value, bool):
        return "bool" in names
    return isinstance(value, tuple(kind for name in names for kind in _PLAIN[name]))
