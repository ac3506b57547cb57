"""Writing a parameter's description, as `space_description` makes it, for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def show_description(description: Mapping[str, Any]) -> str:
    """Write a parameter's description in a few words."""
    kind = description["kind"]
    if kind == "fixed":
        return f"always {description['value']!r}"
    if kind in ("choice", "grid"):
        return f"{kind} {description['choices']}"
    if kind == "function":
        return "a function"
    step = f" in steps of {description['step']:.4g}" if "step" in description else ""
    if "mean" in description:
        return f"{kind}, normal, {description['mean']:.4g} ± {description['sd']:.4g}{step}"
    law = "loguniform" if description["log"] else "uniform"
    return f"{kind}, {law}, {description['lower']:.4g} to {description['upper']:.4g}{step}"
