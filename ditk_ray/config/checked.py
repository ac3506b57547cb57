"""What a person wrote in a file or a variable, checked by a pydantic model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from pathlib import Path
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
    """A frozen model that refuses undeclared keys."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def read_file(flag: str, path: Path, read: Callable[[str], Any]) -> Any:
    """Return what `read` makes of a file's text; raises `BadConfigError` if it cannot."""
    try:
        return read(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BadConfigError(Problem(f"{flag} {path}", f"cannot be read: {error}")) from error


def check(kind: Any, given: Any, source: str, known: Iterable[str], hint: str = "") -> Any:
    """Return what was written as a `kind`; raises `BadConfigError` with every mistake.

    `source` stands before the place of each, such as `tasks[0].name`; a key that is not known
    is compared with `known`, and `hint` is given with what is missing or of a wrong type.
    """
    try:
        return TypeAdapter(kind).validate_python(given)
    except ValidationError as error:
        place = partial(_place, source)
        raise BadConfigError(problems_of(error, place, known, hint)) from None


def problems_of(
    error: ValidationError,
    place: Callable[[Sequence[Any]], str],
    known: Iterable[str] = (),
    hint: str | Mapping[str, str] = "",
) -> Iterator[Problem]:
    """Yield a problem for each place of an error that `place` has a text for; hints may be by it.

    A union has an error for each of its types.
    """
    for where, items in groupby(error.errors(), lambda item: place(item["loc"])):
        if where:
            own = hint if isinstance(hint, str) else hint.get(where, "")
            yield Problem(where, *_what_is_wrong(list(items), known, own))


def _place(source: str, parts: Sequence[str | int]) -> str:
    text = ""
    for part in parts:
        if part != "[key]":
            text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return f"{source}{text}".removesuffix(": ")


def _what_is_wrong(items: Sequence[Any], known: Iterable[str], hint: str) -> tuple[str, str]:
    ours = [str(item["ctx"]["error"]) for item in items if item["type"] == "value_error"]
    if ours:
        return ours[0], ""
    first = items[0]
    if first["type"] == "extra_forbidden":
        return "is not known", did_you_mean(str(first["loc"][-1]), known)
    if first["type"] == "missing":
        return "is missing", hint
    if first["type"] == "model_type":  # whose message names a class of ours
        return f"is {first['input']!r}; it has to be keys with values", hint
    others = (item["msg"].removeprefix("Input should be ") for item in items[1:])
    should = " or ".join([first["msg"].replace("Input should", "it should"), *others])
    return f"is {first['input']!r}; {should}", hint
