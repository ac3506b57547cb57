"""The ways in which an attempt of a trial fails, and how often each is tried again."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from ditk_ray.config.nearest import did_you_mean


class FailureKind(StrEnum):
    """What an attempt failed of. A score that is no number is not among them: that is pruned."""

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


DEFAULT_RETRIES: Mapping[str, int] = MappingProxyType(
    {
        FailureKind.BUG.value: 0,
        FailureKind.OUT_OF_MEMORY.value: 1,
        FailureKind.STALL.value: 2,
        FailureKind.LOST.value: 10,
        FailureKind.DISK_FULL.value: 5,
        FailureKind.NOT_STARTED.value: 1,
    }
)
"""How often a trial is tried again after each kind; those lost are counted by the hour."""


def parse_retries(given: Any) -> Any:
    """Lay what a user wrote over the defaults; raises ValueError saying what is wrong."""
    if not isinstance(given, Mapping):
        raise ValueError(f"it is {given!r}; it has to be a dict such as {{'stall': 3}}")
    for kind, count in given.items():
        if kind not in DEFAULT_RETRIES:
            hint = did_you_mean(str(kind), DEFAULT_RETRIES)
            raise ValueError(f"no kind of failure is called {kind!r}; {hint}")
        if isinstance(count, bool) or not isinstance(count, int) or count < 0:
            raise ValueError(f"{kind} is {count!r}; it has to be a whole number, zero or more")
    return {**DEFAULT_RETRIES, **{str(kind): count for kind, count in given.items()}}
