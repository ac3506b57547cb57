"""The contract of everything that runs: a task, where it runs, and the handle of one run.

A `Task` is what runs, an `Executor` is where, and a `Run` is the handle of one of its runs. What
drives a run follows it by events only, which are the same wherever it runs, and never asks which
executor it has. A new executor is a class with `start` and `listen`, and one line in
`tests/execution/test_contract.py`.

Runs are attached or detached. An attached run dies with its owner, however that ends. A detached
one outlives it: its `handle` is plain data, by which another process finds it again.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, Literal, Protocol, TypeVar

from ditk_ray.config.resources import TrialResources
from ditk_ray.config.terms import FailureKind

Metrics = dict[str, Any]
Handle = dict[str, Any]

WAITING_ACTOR = TrialResources(cpu=0.01)
"""What a trial's actor needs of Ray's nodes that only waits for runs elsewhere."""


@dataclass(frozen=True)
class Started:
    """It computes from now on."""


@dataclass(frozen=True)
class Waiting:
    """Why it has not started yet; comes again when the reason changes."""

    reason: str


@dataclass(frozen=True)
class Evaluated:
    """The policy was evaluated, for the `number`-th time in the life of the training."""

    number: int
    metrics: Metrics
    is_saved: bool = False
    """Whether what it needs to resume from here was saved."""


@dataclass(frozen=True)
class Printed:
    """It has printed something. Runs that write to a log of their own do not send these."""

    data: bytes


@dataclass(frozen=True)
class Ended:
    """It is over, and nothing follows.

    `diverged` is a training whose policy's outputs are not numbers any more. What `failed` has
    an `error` and says by `failure` whether trying again may help.
    """

    kind: Literal["finished", "diverged", "failed"] = "finished"
    returned: Metrics = field(default_factory=dict)
    """The numbers that the training returned."""
    result: Path | None = None
    """The file that it pickled its result to, not yet looked into."""
    error: str = ""
    failure: FailureKind = FailureKind.BUG
    exit_code: int | None = None
    """Of a process, if it is known; a negative one is the signal that ended it."""


Event = Started | Waiting | Evaluated | Printed | Ended


class Task(Protocol):
    """What runs. An executor may ask for more of the tasks that it takes."""

    @property
    def log(self) -> Path:
        """Where all that it prints is kept."""


TaskT = TypeVar("TaskT", bound=Task)


class Run(ABC):
    """The handle of one run. Not for use by several threads; `str` names it for people."""

    @property
    def handle(self) -> Handle:
        """By what another process finds it again; empty if it dies with its owner."""
        return {}

    def pause(self) -> None:  # noqa: B027 (most have nothing to do)
        """Have it stand still, where that is possible."""

    def resume(self) -> None:  # noqa: B027
        """Have it compute again."""

    @abstractmethod
    def stop(self) -> bool:
        """End it, with all that it started; it has a few seconds to leave by itself.

        Returns False if it is out of reach, and may still run. May be called again.
        """


class Executor(ABC, Generic[TaskT]):
    """Where tasks run. It is chosen before a sweep, and pickled into the actors that use it."""

    actor: TrialResources | None = None
    """What a trial's actor needs of Ray that only waits. None: it trains on the actor's own node,
    with the trial's resources, and its seeds take turns."""
    at_once: int | None = None
    """How many trials run at once, unless the job says how many."""
    restores: bool = True
    """Whether runs can resume from checkpoints."""

    # Before a sweep, in its driver.

    def share(self, resources: TrialResources) -> TrialResources:
        """Return what a trial has where it trains, of what its actor was given."""
        return resources

    def check(self, tasks: Sequence[TaskT]) -> None:
        """Raise a `DitkRayError` if such tasks could not run."""

    def preview(self, tasks: Sequence[TaskT]) -> list[list[Mapping[str, Any]]]:
        """Return the manifests that would be submitted for each task, if any."""
        return []

    def describe(self, resources: TrialResources) -> dict[str, Any]:
        """Return what a sweep's record says about where its trials run."""
        return {"resources": resources.given()}

    def place(self, resources: TrialResources, seeds: int) -> str:
        """Say in words where each trial runs."""
        shared = f", which {seeds} seeds share" if seeds > 1 else ""
        return f"each with {resources}{shared}"

    def serve(self, say: Callable[[str], None]) -> contextlib.AbstractContextManager[None]:
        """Hold what runs need for as long as the sweep lasts; `say` is for the user's eyes."""
        return contextlib.nullcontext()

    # In the process that owns the runs.

    def handle_of(self, task: TaskT) -> Handle:
        """Return what the run of a task will be found by, before it is started."""
        return {}

    @abstractmethod
    def start(self, task: TaskT) -> Run:
        """Start a task. Raises `TrialFailedError`, or `OutOfReachError` if the gateway is gone."""

    def adopt(self, task: TaskT, handle: Handle, may_start: bool) -> Run | None:
        """Return the run of this handle, which an earlier process left; None if it is gone.

        With `may_start` nothing was heard of it yet: if it is not there, it is started now.
        """
        return None

    @abstractmethod
    def listen(self, runs: Sequence[Run], seconds: float) -> list[tuple[Run, Event]]:
        """Return what has happened to these runs, in order, waiting for it if need be.

        It waits no longer than `seconds`, and returns an empty list then.
        """

    def close(self) -> None:
        """Let go of what the owner's process holds; its runs have been stopped."""


def follow(executor: Executor[Any], run: Run, seconds: float = 0.5) -> Iterator[Event]:
    """Return the events of one run up to its end; asks every few `seconds`."""
    while True:
        for _, event in executor.listen([run], seconds):
            yield event
            if isinstance(event, Ended):
                return
