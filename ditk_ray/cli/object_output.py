"""What the commands about Kubernetes print: plain tables, JSON or YAML, and questions."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from ditk_ray.errors import BadConfigError, Problem

_GAP = 3


def add_object_format(parser: argparse.ArgumentParser) -> None:
    """Let a command print for people or for programs."""
    parser.add_argument(
        "--format", choices=["table", "json", "yaml"], default="table", help="of what is printed"
    )


def print_value(value: Any, form: str) -> None:
    """Print a value as JSON or YAML."""
    if form == "yaml":
        from ditk_ray.kube.yaml_text import yaml_text

        print(yaml_text(value), end="")
    else:
        from ditk_ray.config.jsonable import json_text

        print(json_text(value, indent=1))


def print_table(lines: Sequence[Sequence[str]], indent: str = "") -> None:
    """Print lines of cells in columns, as kubectl does: nothing is cut off, none is boxed."""
    for line in columns(lines):
        print(f"{indent}{line}".rstrip(), flush=True)


def columns(lines: Sequence[Sequence[str]], widths: Sequence[int] | None = None) -> list[str]:
    """Return each line as a text whose columns stand below each other."""
    sizes = widths or column_widths(lines)
    return [
        (" " * _GAP).join(cell.ljust(size) for cell, size in zip(line, sizes, strict=True)).rstrip()
        for line in lines
    ]


def column_widths(lines: Sequence[Sequence[str]]) -> list[int]:
    """Return how wide each column has to be."""
    return [max(map(len, column)) for column in zip(*lines, strict=True)]


def tell(text: str) -> None:
    """Tell the user something that is no result."""
    print(text, file=sys.stderr, flush=True)


def agrees(question: str, is_yes: bool) -> bool:
    """Ask a question, unless it was answered by --yes; return whether the answer is yes.

    Raises BadConfigError where nobody can be asked.
    """
    if is_yes:
        return True
    if not sys.stdin.isatty():
        what = "is needed where nobody can be asked"
        raise BadConfigError(Problem("--yes", what, "nothing was deleted"))
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    answer = sys.stdin.readline().strip().lower()
    if answer not in ("y", "yes"):
        tell("nothing was deleted")
        return False
    return True
