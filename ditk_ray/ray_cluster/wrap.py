"""Running wrapped commands on the cluster that the process is connected to."""

from __future__ import annotations

import contextlib
import math
import os
import re
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, Protocol

import ray
from ray.util.placement_group import placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from ditk_ray.config.resources import THREAD_VARIABLES, TrialResources
from ditk_ray.errors import BadConfigError, Problem
from ditk_ray.execution.executor import Ended, Event, Printed, follow
from ditk_ray.ray_cluster.command_process import CommandExecutor, CommandTask
from ditk_ray.ray_cluster.commands import WrappedCommand, ray_options
from ditk_ray.ray_cluster.nodes import Node, lease_cores

_WAIT_SECONDS = 0.5
_CANCEL_SECONDS = 15.0  # for commands to end, before their workers are killed
_UNREAD = 64  # pieces of output that a command may be ahead of us
# What Ray sets for its own processes, and would confuse others.
_OF_THE_WORKER = {
    *("RAY_JOB_ID", "RAY_RAYLET_PID", "RAY_CLIENT_MODE", "RAY_LD_PRELOAD_ON_WORKERS"),
    *("SPT_NOENV", "PYTHONBREAKPOINT"),
}


@dataclass(frozen=True)
class Placed:
    """A command starts, with these cores and GPUs of its node."""

    node: str
    cores: tuple[int, ...]
    gpus: tuple[str, ...]


def run_command(command: WrappedCommand, folder: str | None) -> Iterator[Placed | Event]:
    """Run a command to its end on this node, in a Ray task with its resources.

    `folder` is where it runs, if it does not say so itself; None is where the worker is, which
    is the shipped code. However this generator ends, nothing of the command is left then.
    """
    gpus = tuple(sorted((str(gpu) for gpu in ray.get_gpu_ids()), key=lambda gpu: (len(gpu), gpu)))
    with contextlib.closing(lease_cores(command.num_cpus)) as lease:
        task = CommandTask(
            arguments=list(command.arguments),
            folder=str(Path(folder or Path.cwd(), command.cwd)),
            env=_environment(command.share, gpus) | command.env,
            cores=lease.cores,
            memory=command.memory,
        )
        executor = CommandExecutor(lease.descriptor)
        run = executor.start(task)
        try:
            yield Placed(socket.gethostname(), lease.cores, gpus)
            yield from follow(executor, run)
        finally:
            run.stop()


def _environment(resources: TrialResources, gpus: Sequence[str]) -> dict[str, str]:
    environment = {name: value for name, value in os.environ.items() if name not in _OF_THE_WORKER}
    environment |= dict.fromkeys(THREAD_VARIABLES, str(resources.threads))
    environment["CUDA_VISIBLE_DEVICES"] = ",".join(gpus)
    if resources.gpu:
        # Its share of each GPU: nothing but the program itself can keep to it.
        environment["DITK_RAY_GPU_FRACTION"] = f"{resources.gpu / math.ceil(resources.gpu):g}"
    # `python` is the one that Ray has here, unless the node was set up to have another.
    home = str(Path(sys.executable).parent)
    known = environment.get("PATH", os.defpath).split(os.pathsep)
    if home not in known:
        environment["PATH"] = os.pathsep.join([home, *known])
    return environment


@dataclass
class CommandRun:
    """One command, its state, and where it ran; a signal's `exit_code` is as a shell has it."""

    number: int
    command: WrappedCommand
    state: Literal["waiting", "running", "succeeded", "failed", "cancelled"] = "waiting"
    node: str = ""
    cores: tuple[int, ...] = ()
    gpus: tuple[str, ...] = ()
    exit_code: int | None = None
    why: str = ""
    begun: float | None = None
    seconds: float = 0.0


class RunListener(Protocol):
    """Receives what happens to commands, in one thread; `waits` is called now and then."""

    def begins(self, run: CommandRun) -> None: ...

    def prints(self, run: CommandRun, data: bytes) -> None: ...

    def ends(self, run: CommandRun) -> None: ...

    def waits(self, waiting: Sequence[CommandRun]) -> None: ...


@dataclass
class WrappedRun:
    """Commands on a cluster: all are given to Ray, which runs them where and when they fit.

    With `is_concurrent` none begins before all can, and with `is_fail_fast` the first that
    fails ends the others. `folder` is where they run, see `run_command`.
    """

    commands: Sequence[WrappedCommand]
    nodes: Sequence[Node]
    listener: RunListener
    folder: str | None = None
    is_concurrent: bool = False
    is_fail_fast: bool = False
    first_failed: CommandRun | None = field(default=None, init=False)
    _open: dict[Any, CommandRun] = field(default_factory=dict, init=False)
    _is_cancelled: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self.runs = [CommandRun(number, one) for number, one in enumerate(self.commands)]

    def follow(self) -> None:
        """Run all commands to their ends; any interruption ends them first."""
        with self._places() as strategies:
            for run, strategy in zip(self.runs, strategies, strict=True):
                self._open[self._submit(run, strategy)] = run
            try:
                while self._open:
                    self._receive()
                    waiting = [run for run in self._open.values() if run.state == "waiting"]
                    if waiting and not self._is_cancelled:
                        self.listener.waits(waiting)
                    if self.is_fail_fast and self.first_failed and not self._is_cancelled:
                        self.cancel()
            except BaseException:
                self._cancel_and_wait()
                raise

    def cancel(self) -> None:
        """Cancel all commands that still run or wait; `follow` receives their ends."""
        self._is_cancelled = True
        for generator in self._open:
            ray.cancel(generator)

    def _submit(self, run: CommandRun, strategy: Any) -> Any:
        options = ray_options(run.command, self.nodes)
        if strategy is not None:
            del options["label_selector"]  # its place was chosen by it
        task = ray.remote(run_command).options(
            num_returns="streaming",
            max_retries=0,  # a command that ran once may have done something
            _generator_backpressure_num_objects=_UNREAD,
            name=f"wrap [{run.command.name}]",
            scheduling_strategy=strategy,
            **options,
        )
        return task.remote(run.command, self.folder)

    @contextlib.contextmanager
    def _places(self) -> Iterator[list[Any]]:
        if not self.is_concurrent:
            yield [None] * len(self.runs)
            return
        chosen = [ray_options(run.command, self.nodes)["label_selector"] for run in self.runs]
        needs = [run.command.needs.for_ray() for run in self.runs]
        group = placement_group(needs, bundle_label_selector=chosen)
        try:
            yield [PlacementGroupSchedulingStrategy(group, run.number) for run in self.runs]
        finally:
            remove_placement_group(group)

    def _receive(self) -> None:
        """Take in what has come, one piece of each command, so that none drowns the others."""
        ray.wait([*self._open], num_returns=1, timeout=_WAIT_SECONDS)
        ready, _ = ray.wait([*self._open], num_returns=len(self._open), timeout=0)
        for generator in ready:
            run = self._open[generator]
            try:
                self._take(run, ray.get(next(generator)))
            except (StopIteration, ray.exceptions.RayError) as error:
                why = "" if self._is_cancelled else _reason(error)
                self._take(run, Ended("failed", error=why))
            if run.state not in ("waiting", "running"):
                del self._open[generator]

    def _take(self, run: CommandRun, event: Placed | Event) -> None:
        if isinstance(event, Placed):
            run.state, run.begun = "running", time.monotonic()
            run.node, run.cores, run.gpus = event.node, event.cores, event.gpus
            self.listener.begins(run)
        elif isinstance(event, Printed):
            self.listener.prints(run, event.data)
        elif isinstance(event, Ended):
            run.state = "cancelled" if self._is_cancelled else "failed"
            if event.exit_code == 0:
                run.state = "succeeded"
            run.why, code = event.error, event.exit_code
            run.exit_code = 128 - code if code is not None and code < 0 else code
            run.seconds = time.monotonic() - run.begun if run.begun else 0.0
            if run.state == "failed" and self.first_failed is None:
                self.first_failed = run
            self.listener.ends(run)

    def _cancel_and_wait(self) -> None:
        """End everything, and wait for it; what does not end in time loses its worker."""
        deadline = time.monotonic() + _CANCEL_SECONDS
        self.cancel()
        while self._open and time.monotonic() < deadline:
            self._receive()
        for generator in self._open:
            ray.cancel(generator, force=True)


_REASONS = {
    ray.exceptions.TaskCancelledError: "it was cancelled externally",
    ray.exceptions.NodeDiedError: "its node was lost",
    ray.exceptions.OutOfMemoryError: "Ray killed it, as its node was short of memory",
    ray.exceptions.WorkerCrashedError: "its Ray worker was killed",
    ray.exceptions.RuntimeEnvSetupError: "its Ray worker could not be set up",
}


def _reason(error: Exception) -> str:
    last = str(error).strip().rpartition("\n")[2]
    how = f"failed: {last}" if last else "ended without an error message"
    other = f"its Ray worker {how}"
    return next((text for kind, text in _REASONS.items() if isinstance(error, kind)), other)


def make_log_folder(wanted: Path | None) -> Path:
    """Return a new or empty folder for logs, by default one that is named after the time."""
    folder = wanted or Path("ditk_ray_wrapped") / f"{datetime.now():%Y%m%d_%H%M%S_%f}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        is_empty = not any(folder.iterdir())
    except OSError as error:
        raise BadConfigError(Problem(f"--log_dir {folder}", str(error.strerror))) from None
    if not is_empty:
        raise BadConfigError(Problem(f"--log_dir {folder}", "is not empty", "give another folder"))
    return folder


def log_name(number: int, name: str) -> str:
    """Return the file name of a command's log: its number, and its name if it has one."""
    plain = re.sub(r"[^\w.+-]+", "_", name)
    return f"{number}.log" if name == str(number) else f"{number}_{plain}.log"
