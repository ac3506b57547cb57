"""Tasks as guarded processes of this node: forks of its fork server.

The messages of a task are `evaluation`, then `end`, `error` or `diverged`; its guard adds `exit`.
"""

from __future__ import annotations

import signal
from collections.abc import Sequence
from functools import cached_property
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Protocol

from ditk_ray.config.terms import FailureKind
from ditk_ray.execution.executor import (
    Ended,
    Evaluated,
    Event,
    Executor,
    Run,
    Started,
    Task,
)
from ditk_ray.execution.fork_client import ForkClient, GuardedProcess
from ditk_ray.execution.guard import Channel, Message

EXIT_SECONDS = 5.0
"""How long a process has to leave after it said that training has ended."""

_TAKEN_AWAY = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGKILL)
_BROKEN_PIPES = ("EOFError", "BrokenPipeError", "ConnectionResetError", "ConnectionAbortedError")
_KILL_COUNTERS = (
    Path("/proc/vmstat"),
    Path("/sys/fs/cgroup/memory.events"),
    Path("/sys/fs/cgroup/memory/memory.oom_control"),
)


class ProcessTask(Task, Protocol):
    """A task that runs in a process of its own, which is given over to it."""

    @property
    def memory(self) -> int | None:
        """How many bytes it may have; it keeps to that by itself."""

    @property
    def python_path(self) -> tuple[str, ...]:
        """The folders that its modules are in."""

    def run(self, channel: Channel) -> None:
        """Do it, and send messages; what it prints goes to its log."""


class ProcessExecutor(Executor[Any]):
    """Runs tasks in forks of this node's server, which has `preload` imported."""

    def __init__(self, key: str, preload: Sequence[str] = ()) -> None:
        self._key = key
        self._preload = tuple(preload)

    @cached_property
    def _node(self) -> ForkClient:
        node = ForkClient(self._key)
        # On a node that is not the driver's, the server has only just started.
        node.preload(self._preload)
        return node

    def start(self, task: ProcessTask) -> ProcessRun:
        return ProcessRun(self._node.run(task.run, task.python_path), task.memory)

    def listen(self, runs: Sequence[Run], seconds: float) -> list[tuple[Run, Event]]:
        known = [run for run in runs if isinstance(run, ProcessRun)]
        if fresh := [run for run in known if run.is_new]:
            return [(run, run.begin()) for run in fresh]
        live = {run.connection: run for run in known if not run.has_ended}
        heard = [live[ready] for ready in wait(list(live), seconds)]  # type: ignore[index]
        return [(run, run.receive()) for run in heard]

    def close(self) -> None:
        if "_node" in self.__dict__:
            self._node.leave()
            del self._node


class ProcessRun(Run):
    """A running process."""

    def __init__(self, process: GuardedProcess, memory: int | None) -> None:
        self.is_new = True
        """Whether its start is still to be reported."""
        self.has_ended = False
        self._process = process
        self._memory = memory
        self._kills = kernel_kills()

    def __str__(self) -> str:
        return "the trial's process"

    @property
    def connection(self) -> Connection:
        return self._process.connection

    def begin(self) -> Event:
        self.is_new = False
        return Started()

    def receive(self) -> Event:
        message = self._process.receive()
        if message is not None and message["kind"] == "evaluation":
            return Evaluated(message["number"], message["metrics"], message["saved"])
        self.has_ended = True
        return self._exited() if message is None else self._last_words(message)

    def pause(self) -> None:
        self._process.pause()

    def resume(self) -> None:
        self._process.resume()

    def stop(self) -> bool:
        self._process.stop()
        return True

    def _last_words(self, message: Message) -> Ended:
        if message["kind"] == "diverged":
            return Ended("diverged")
        if message["kind"] == "error":
            said, ran_out = message["message"], kernel_kills() > self._kills
            kind = kind_of_message(message["failure"], said, ran_out)
            return Ended("failed", error=said, failure=kind)
        self._process.resume()  # it may just have been paused
        if self._process.connection.poll(EXIT_SECONDS):
            self._process.receive()
        result = Path(message["result"]) if message["result"] else None
        return Ended(returned=message["returned"], result=result)

    def _exited(self) -> Ended:
        code, grown = self._process.exit_code, self._process.grown
        outgrew = self._memory is not None and grown > self._memory
        kind = kind_of_exit(code, outgrew or kernel_kills() > self._kills)
        return Ended("failed", error=describe_exit(code), failure=kind, exit_code=code)


def kind_of_exit(code: int | None, ran_out_of_memory: bool) -> FailureKind:
    """Say why a process failed that ended without a message.

    `code` is negative for a signal, None if unknown. `ran_out_of_memory` says
    whether there is a sign of that.
    """
    if code is None:
        return FailureKind.LOST
    if code == -signal.SIGKILL and ran_out_of_memory:
        return FailureKind.OUT_OF_MEMORY
    return FailureKind.LOST if -code in _TAKEN_AWAY else FailureKind.BUG


def kind_of_message(kind: str, message: str, ran_out_of_memory: bool) -> FailureKind:
    """Say why a training failed that reported it itself.

    One that lost a process below it only sees a broken pipe, whatever ended that.
    """
    if ran_out_of_memory and message.startswith(_BROKEN_PIPES):
        return FailureKind.OUT_OF_MEMORY
    return FailureKind(kind)


def describe_exit(code: int | None) -> str:
    if code is not None and code < 0:
        return f"the trial's process was ended by {signal.Signals(-code).name}"
    if code is None:
        return "the trial's process and its guard are gone"
    return f"the trial's process exited with code {code} before its training ended"


def kernel_kills() -> int:
    """Return how many processes the kernel has ended for lack of memory on this node.

    Counted are those of the whole node: where the files of control groups cannot be
    seen, nothing says whose they were.
    """
    return max(_counted(path) for path in _KILL_COUNTERS)


def _counted(path: Path) -> int:
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return 0
    found = [line.split() for line in lines if line.startswith("oom_kill ")]
    return int(found[0][1]) if found else 0
