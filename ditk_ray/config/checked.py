"""What a person wrote in a file or a variable, checked by a pydantic model."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, TypeAdapter, ValidationError

from ditk_ray.errors import BadConfigError, Problem
from ditk_ray.util.suggest import did_you_mean


def _text(given: Any) -> str:
    if isinstance(given, bool) or not isinstance(given, (str, int, float)):
        raise ValueError(f"is {given!r}; it has to be a text: quote it")
    return str(given)


Text = Annotated[str, BeforeValidator(_text)]
"""A text, or a number that stands for itself."""


class Written(BaseModel):
    """A frozen model that refuses keys which nobody declared."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def check(kind: Any, given: Any, source: str, known: Iterable[str], hint: str = "") -> Any:
    """Return what was written as a `kind`; raises `BadConfigError` with every mistake.

    `source` stands before the place of each, such as `tasks[0].name`; a key that is not known
    is compared with `known`, and `hint` is given with what is missing or of a wrong type.
    """
    try:
        return TypeAdapter(kind).validate_python(given)
    except ValidationError as error:
        problems: dict[str, Problem] = {}  # a union has an error for each of its types
        for item in error.errors():
            place = f"{source}{_place(item['loc'])}".removesuffix(": ")
            problems.setdefault(place, Problem(place, *what_is_wrong(item, known, hint)))
        raise BadConfigError(problems.values()) from None


def _place(parts: Iterable[str | int]) -> str:
    """Return `tasks[0].env.A` for the parts of a place; a key's own mistake is at the key."""
    text = ""
    for part in parts:
        if part != "[key]":
            text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def what_is_wrong(item: Any, known: Iterable[str], hint: str) -> tuple[str, str]:
    """Return what an error of pydantic means, and what to do."""
    if item["type"] == "extra_forbidden":
        return "is not known", did_you_mean(str(item["loc"][-1]), known)
    if item["type"] == "missing":
        return "is missing", hint
    if item["type"] == "value_error":  # one of our own
        return str(item["ctx"]["error"]), ""
    if item["type"] == "model_type":  # whose message names a class of ours
        return f"is {item['input']!r}; it has to be keys with values", hint
    should = item["msg"].replace("Input should", "it should")
    return f"is {item['input']!r}; {should}", hint
