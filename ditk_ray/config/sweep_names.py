"""What a sweep may be called: its name is a folder's, and nothing more than that."""

from __future__ import annotations

import re

from ditk_ray.errors import BadConfigError, Problem

_NAME = re.compile(r"[\w][\w.+-]*")


def require_sweep_name(name: str) -> None:
    """Raise `BadConfigError` unless a sweep can be called that."""
    if not _NAME.fullmatch(name):
        what = "has to be letters, digits, and . _ + - only"
        raise BadConfigError(Problem(f"--name {name}", what))
