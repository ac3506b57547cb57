"""Trainings that only seem to be some: their metrics come from a list or a function.

They need neither DI-engine nor a process, so whatever is driven by evaluations (searchers,
schedulers, records, reports) can be tried with them in milliseconds.
"""

from __future__ import annotations

import functools
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from ditk_ray.execution.executor import (
    WAITING_ACTOR,
    Ended,
    Evaluated,
    Event,
    Executor,
    Metrics,
    Run,
    Started,
    Task,
)

Script = Callable[..., Iterator[Mapping[str, Any]]]
_SCRIPT = "ditk_ray_script"


def scripted(script: Script | Sequence[Mapping[str, Any]]) -> Callable[..., None]:
    """Make an entry that a sweep runs without DI-engine; called by itself, it prints the metrics.

    `script` is called as `script(config, seed=...)` with the trial's main config, and yields the
    metrics of one evaluation after the other; what it returns are the numbers that the training
    returns. A list stands for itself, whatever the config. Seconds between evaluations are its
    own to sleep.
    """
    steps = script if callable(script) else _as_function(script)

    @functools.wraps(steps)
    def entry(configs: tuple[Any, Any], **arguments: Any) -> None:
        for row in steps(configs[0], **arguments):
            print(row)

    setattr(entry, _SCRIPT, steps)
    return entry


def _as_function(rows: Sequence[Mapping[str, Any]]) -> Script:
    def listed(config: Any, **_: Any) -> Iterator[Mapping[str, Any]]:
        yield from rows

    return listed


def script_of(entry: Any) -> Script | None:
    """Return the script of an entry that `scripted` has made, else None."""
    return getattr(entry, _SCRIPT, None)


class ScriptedTask(Task, Protocol):
    """A task with a script."""

    def script(self) -> Iterator[Mapping[str, Any]]:
        """Call the script with the task's config."""


class ScriptedExecutor(Executor[Any]):
    """Runs scripts step by step in this process, whenever their owner listens."""

    actor = WAITING_ACTOR
    at_once = 8
    restores = False

    def start(self, task: ScriptedTask) -> ScriptedRun:
        return ScriptedRun(task)

    def listen(self, runs: Sequence[Run], seconds: float) -> list[tuple[Run, Event]]:
        live = [run for run in runs if isinstance(run, ScriptedRun) and not run.has_ended]
        if not live:
            time.sleep(seconds)
        return [(run, run.step()) for run in live]


class ScriptedRun(Run):
    """A script that is being followed."""

    def __init__(self, task: ScriptedTask) -> None:
        self.has_ended = False
        self._log: Path = task.log
        self._number = 0
        self._steps = task.script()
        self._has_started = False

    def __str__(self) -> str:
        return "the script"

    def step(self) -> Event:
        if not self._has_started:
            self._has_started = True
            self._log.parent.mkdir(parents=True, exist_ok=True)
            return Started()
        with self._log.open("a") as log:
            try:
                metrics: Metrics = dict(next(self._steps))
            except StopIteration as end:
                self.has_ended = True
                return Ended(returned=dict(end.value or {}))
            except Exception as error:
                self.has_ended = True
                traceback.print_exc(file=log)
                return Ended("failed", error=f"{type(error).__name__}: {error}")
            print(metrics, file=log)
        self._number += 1
        return Evaluated(self._number, metrics)

    def stop(self) -> bool:
        self.has_ended = True
        return True
