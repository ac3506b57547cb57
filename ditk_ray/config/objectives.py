"""What a sweep optimises: one metric, or several at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ditk_ray.config.nearest import did_you_mean

Mode = Literal["max", "min"]
MODES = ("max", "min")


@dataclass(frozen=True)
class Objective:
    """A metric, and whether it is to grow or to fall."""

    metric: str
    mode: Mode

    def __str__(self) -> str:
        return f"{self.mode} {self.metric}"

    def is_better(self, value: float, other: float) -> bool:
        """Say whether a value beats another one."""
        return value > other if self.mode == "max" else value < other


def parse_metrics(given: Any) -> list[str]:
    """Return the names of the metrics: of one, of a list, or of a text with commas.

    Raises `ValueError`.
    """
    names = _listed(given)
    if not names or not all(isinstance(name, str) and name for name in names):
        raise ValueError(f"it is {given!r}; it has to be the name of a metric, or several")
    if len(set(names)) < len(names):
        raise ValueError(f"a metric is listed twice (it is {given!r})")
    return names


def parse_modes(given: Any) -> list[Mode]:
    """Return the modes, which may be given in the same ways. Raises `ValueError`."""
    found = _listed(given)
    for mode in found:
        if mode not in MODES:
            hint = did_you_mean(str(mode), MODES)
            raise ValueError(f"it is {given!r}; it has to be max or min, or one for each. {hint}")
    if not found:
        raise ValueError("it is empty; it has to be max or min")
    return found


def pair_objectives(metrics: Sequence[str], modes: Sequence[Mode]) -> list[Objective]:
    """Return the objectives; a single mode counts for all metrics. Raises `ValueError`."""
    each = list(modes) * len(metrics) if len(modes) == 1 else list(modes)
    if len(each) != len(metrics):
        raise ValueError(f"there are {len(each)} for {len(metrics)} metrics; give one for each")
    return [Objective(metric, mode) for metric, mode in zip(metrics, each, strict=True)]


def show_objectives(objectives: Sequence[Objective]) -> str:
    """Write the objectives in a line."""
    return ", ".join(str(objective) for objective in objectives)


def _listed(given: Any) -> list[Any]:
    if isinstance(given, str):
        return [part.strip() for part in given.split(",")]
    return list(given) if isinstance(given, (list, tuple)) else [given]
