"""What commands print: results to stdout, as a table, JSON or YAML; everything else to stderr."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ditk_ray.errors import BadConfigError, Problem
from ditk_ray.kube.objects import show_age
from ditk_ray.kube.yaml_text import yaml_text
from ditk_ray.util.plain import json_text

_GAP = "   "
_LONGEST_LINE = 64 * 1024


def note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


class LineBuffer:
    """Makes lines of a text that comes in pieces.

    What never ends its line, such as a progress bar, comes in long ones.
    """

    def __init__(self) -> None:
        self._rest = ""

    def take(self, text: str) -> list[str]:
        *lines, self._rest = (self._rest + text).split("\n")
        return lines + self.close() if len(self._rest) > _LONGEST_LINE else lines

    def close(self) -> list[str]:
        """Return the last line, if it was not ended."""
        rest, self._rest = self._rest, ""
        return [rest] if rest else []


def print_value(value: Any, form: str = "json") -> None:
    if form == "yaml":
        print(yaml_text(value), end="")
    else:
        print(json_text(value, indent=1))


def print_items(items: Sequence[Mapping[str, Any]], keys: Sequence[str], form: str) -> None:
    """Print items as a table of these keys, unless there are none, or whole as JSON or YAML."""
    if form != "table":
        print_value(items, form)
    elif items:
        print_table(item_rows(items, keys))


def print_table(lines: Sequence[Sequence[str]], indent: str = "") -> None:
    """Print lines of cells in columns, as kubectl does: nothing is cut off, none is boxed."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        cells = [cell.ljust(width) for cell, width in zip(line, widths, strict=True)]
        print((indent + _GAP.join(cells)).rstrip(), flush=True)


def print_facts(facts: Mapping[str, str]) -> None:
    print_table([[f"{name}:", value] for name, value in facts.items() if value])


def print_section(title: str, items: Sequence[Mapping[str, Any]], keys: Sequence[str]) -> None:
    print(f"{title}:" + ("" if items else " none"))
    if items:
        print_table(item_rows(items, keys), indent="  ")


def item_rows(items: Iterable[Mapping[str, Any]], keys: Sequence[str]) -> list[list[str]]:
    """Return the headings, which are the keys, and a line of cells for each item."""
    headings = [key.upper().replace("_", " ") for key in keys]
    return [headings, *([_cell(key, each[key]) for key in keys] for each in items)]


def _cell(key: str, value: Any) -> str:
    if key == "age":
        return show_age(value)
    if isinstance(value, dict):
        return ", ".join(f"{count} {name}" for name, count in value.items()) or "-"
    return "-" if value is None else str(value) or "-"


def show_value(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def short_path(path: Path) -> str:
    """Write a path relative to the working directory where it is below it."""
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)


def agrees(question: str, is_yes: bool) -> bool:
    """Ask a question, unless it was answered by --yes; return whether the answer is yes.

    Raises BadConfigError if there is no terminal to ask on.
    """
    if is_yes:
        return True
    if not sys.stdin.isatty():
        what = "is needed when there is no terminal to confirm on"
        raise BadConfigError(Problem("--yes", what, "nothing was deleted"))
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() in ("y", "yes"):
        return True
    note("nothing was deleted")
    return False
