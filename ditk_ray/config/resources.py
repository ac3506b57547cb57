"""What one trial needs of a node."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from ditk_ray.util.units import parse_bytes, show_bytes

THREAD_VARIABLES = tuple(f"{name}_NUM_THREADS" for name in ("OMP", "MKL", "OPENBLAS", "NUMEXPR"))
"""The environment variables that limit the threads of numeric libraries."""


@dataclass(frozen=True)
class TrialResources:
    """The share of a node that a trial is given and kept to.

    `gpu` may be a fraction below one. `memory` is in bytes; None is no limit.
    `max_memory` is what a trial that ran out of memory is tried again with.
    `custom` are Ray's own named resources.
    """

    cpu: float = 1.0
    gpu: float = 0.0
    memory: int | None = None
    custom: Mapping[str, float] = field(default_factory=dict)
    max_memory: int | None = None

    def for_ray(self) -> dict[str, float]:
        """Return Ray's names and amounts, without those that are zero."""
        amounts = {"CPU": self.cpu, "GPU": self.gpu, "memory": float(self.memory or 0)}
        return {name: value for name, value in (amounts | dict(self.custom)).items() if value}

    def given(self) -> dict[str, Any]:
        """Return the amounts that are not zero, by our own names."""
        return {key: value for key, value in asdict(self).items() if value}

    def as_given(self, amounts: Mapping[str, float]) -> TrialResources:
        """Return what a trial has that Ray gave these amounts, by its own names."""
        memory = amounts.get("memory")
        return replace(
            self,
            cpu=float(amounts.get("CPU", 0)),
            gpu=float(amounts.get("GPU", 0)),
            memory=int(memory) if memory else None,
        )

    @property
    def threads(self) -> int:
        return max(1, int(self.cpu))

    def __str__(self) -> str:
        parts = [f"{self.cpu:g} CPU"]
        if self.gpu:
            parts.append(f"{self.gpu:g} GPU")
        if self.memory:
            parts.append(f"{show_bytes(self.memory)} memory")
        return ", ".join(parts + [f"{amount:g} {name}" for name, amount in self.custom.items()])


def parse_resources(given: Mapping[str, Any] | TrialResources) -> TrialResources:
    """Build the resources from what a user wrote; raises ValueError saying what is wrong."""
    if isinstance(given, TrialResources):
        return given
    if not isinstance(given, Mapping):
        raise ValueError(f"it is {given!r}; it has to be a dict such as {{'cpu': 1}}")
    values = {str(key).lower(): value for key, value in given.items()}
    names = [one.name for one in fields(TrialResources)]
    unknown = sorted(set(values) - set(names))
    if unknown:
        raise ValueError(
            f"unknown {', '.join(unknown)}; the keys are {', '.join(names)} "
            "(Ray's own named resources go into 'custom')"
        )
    if not isinstance(values.get("custom", {}), Mapping):
        raise ValueError(f"custom is {values['custom']!r}; it has to be a dict of amounts")
    custom = {str(name): _amount(name, value) for name, value in values.get("custom", {}).items()}
    gpu = _amount("gpu", values.get("gpu", 0))
    if gpu > 1 and gpu != int(gpu):
        raise ValueError(f"gpu is {gpu:g}; above 1 it has to be a whole number")
    sizes = (values.get(name) for name in ("memory", "max_memory"))
    memory, max_memory = (None if size is None else parse_bytes(size) for size in sizes)
    if memory == 0:
        raise ValueError("memory is 0, with which nothing can run; leave it out for no limit")
    if max_memory is not None and (memory is None or max_memory <= memory):
        raise ValueError("max_memory has to be more than memory, which has to be given with it")
    return TrialResources(_amount("cpu", values.get("cpu", 1)), gpu, memory, custom, max_memory)


def _amount(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < math.inf:
        raise ValueError(f"{name} is {value!r}; it has to be a number, zero or more")
    return float(value)
