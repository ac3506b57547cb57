"""The terms that jobs, records and reports share; nothing here needs Ray.

Objectives, the kinds of failure, and parameters as data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Literal, get_args

from ditk_ray.errors import BadConfigError, Problem
from ditk_ray.util.suggest import did_you_mean

Mode = Literal["max", "min"]
MODES = get_args(Mode)
Aggregate = Literal["mean", "median", "worst", "iqm"]
"""What a trial's score may be of those of its seeds."""
Reporter = Literal["auto", "live", "plain", "none"]
REPORTERS = get_args(Reporter)
"""The progress displays that have a name; others are classes of the user's."""

DEFAULT_RETRIES: Mapping[str, int] = MappingProxyType(
    {"bug": 0, "out_of_memory": 1, "stall": 2, "lost": 10, "disk_full": 5, "not_started": 1}
)
"""How often a trial is tried again after each kind; those lost are counted by the hour."""


@dataclass(frozen=True)
class Objective:
    """A metric, and whether it is to grow or to fall."""

    metric: str
    mode: Mode

    def __str__(self) -> str:
        return f"{self.mode} {self.metric}"


def parse_objectives(metric: Any, mode: Any) -> list[Objective]:
    """Return the objectives; each is one, a list, or a text with commas.

    A single mode counts for all metrics. Raises `BadConfigError` with the field of each mistake.
    """
    metrics, modes = _listed(metric), _listed(mode)
    problems = []
    if not metrics or not all(isinstance(name, str) and name for name in metrics):
        what = f"it is {metric!r}; it has to be the name of a metric, or several"
        problems.append(Problem("metric", what))
    elif len(set(metrics)) < len(metrics):
        problems.append(Problem("metric", f"a metric is listed twice (it is {metric!r})"))
    if not modes or not all(item in MODES for item in modes):
        what = f"it is {mode!r}; it has to be max or min, or one for each"
        problems.append(Problem("mode", what))
    elif len(modes) not in (1, len(metrics)):
        what = f"there are {len(modes)} for {len(metrics)} metrics; give one for each"
        problems.append(Problem("mode", what))
    if problems:
        raise BadConfigError(problems)
    each = modes * len(metrics) if len(modes) == 1 else modes
    return [Objective(*pair) for pair in zip(metrics, each, strict=True)]


def show_objectives(objectives: Sequence[Objective]) -> str:
    return ", ".join(str(objective) for objective in objectives)


def _listed(given: Any) -> list[Any]:
    if isinstance(given, str):
        return [part.strip() for part in given.split(",")]
    return list(given) if isinstance(given, (list, tuple)) else [given]


class FailureKind(StrEnum):
    """What an attempt failed of. A score of NaN is not among them: such a trial is pruned."""

    BUG = "bug"
    """The training raised, or crashed: it would again."""

    OUT_OF_MEMORY = "out_of_memory"
    LOST = "lost"
    """Its process or its node was taken away."""

    STALL = "stall"
    """It did not evaluate in time."""

    DISK_FULL = "disk_full"
    NOT_STARTED = "not_started"
    """Its job on Kubernetes did not get to run."""


def parse_retries(given: Any) -> Any:
    """Lay what a user wrote over the defaults; raises ValueError for an unknown kind."""
    if not isinstance(given, Mapping):
        raise ValueError(f"it is {given!r}; it has to be a dict such as {{'stall': 3}}")
    for kind in set(given) - set(DEFAULT_RETRIES):
        hint = did_you_mean(str(kind), DEFAULT_RETRIES)
        raise ValueError(f"{kind!r} is not a kind of failure; {hint}")
    return {**DEFAULT_RETRIES, **given}


def show_description(description: Mapping[str, Any]) -> str:
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
