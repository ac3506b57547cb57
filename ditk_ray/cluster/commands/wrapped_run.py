"""Running wrapped commands on the cluster that the process is connected to."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from ditk_ray.cluster.commands.command_placement import label_selector, needs, ray_options
from ditk_ray.cluster.commands.command_task import Began, CommandEvent, Ended, Printed, run_command
from ditk_ray.cluster.commands.wrapped_command import WrappedCommand
from ditk_ray.cluster.nodes import Node

_WAIT_SECONDS = 0.5
_CANCEL_SECONDS = 15.0
"""How long commands have to end when they are told to, before their workers are killed."""
_UNREAD = 64
"""How many pieces of output a command may be ahead of us before it has to wait."""


class CommandState(StrEnum):
    """How a command stands."""

    WAITING = "waiting"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_final(self) -> bool:
        """Whether nothing more comes of it."""
        return self not in (CommandState.WAITING, CommandState.RUNNING)


@dataclass
class CommandRun:
    """One command, how it stands, and where it ran."""

    number: int
    command: WrappedCommand
    state: CommandState = CommandState.WAITING
    node: str = ""
    cores: tuple[int, ...] = ()
    gpus: tuple[str, ...] = ()
    exit_code: int | None = None
    """As a shell has it: 128 and the signal's number for a command that a signal ended."""
    why: str = ""
    seconds: float = 0.0
    _begun: float = field(default=0.0, repr=False)

    def begin(self, event: Began, node: str) -> None:
        """Note that it runs."""
        self.state, self._begun = CommandState.RUNNING, time.monotonic()
        self.node, self.cores, self.gpus = node, event.cores, event.gpus

    def end(self, state: CommandState, code: int | None, why: str = "") -> None:
        """Note that it is over."""
        self.state, self.why = state, why
        self.exit_code = 128 - code if code is not None and code < 0 else code
        self.seconds = time.monotonic() - self._begun if self._begun else 0.0


class RunListener(Protocol):
    """Who wants to hear what becomes of commands; all calls come from one thread."""

    def begins(self, run: CommandRun) -> None:
        """Hear that a command runs."""

    def prints(self, run: CommandRun, data: bytes) -> None:
        """Hear what it printed."""

    def ends(self, run: CommandRun) -> None:
        """Hear that it is over."""

    def waits(self, waiting: Sequence[CommandRun]) -> None:
        """Hear, now and then, that some commands do not run yet."""


class WrappedRun:
    """Commands on a cluster: all are given to Ray, which runs them where and when they fit.

    With `is_concurrent` none begins before all can, and with `is_fail_fast` the first that
    fails ends the others. `folder` is where they run, see `run_command`.
    """

    def __init__(
        self,
        commands: Sequence[WrappedCommand],
        nodes: Sequence[Node],
        listener: RunListener,
        *,
        folder: str | None = None,
        is_concurrent: bool = False,
        is_fail_fast: bool = False,
    ) -> None:
        self.runs = [CommandRun(number, command) for number, command in enumerate(commands)]
        self.first_failed: CommandRun | None = None
        """The one that failed before any other did."""
        self._nodes = nodes
        self._names = {node.id: node.name for node in nodes}
        self._listener = listener
        self._folder = folder
        self._is_concurrent = is_concurrent
        self._is_fail_fast = is_fail_fast
        self._open: dict[Any, CommandRun] = {}
        self._is_ending = False

    def follow(self) -> None:
        """Run all commands to their ends; whatever interrupts this ends them first."""
        with self._started():
            try:
                while self._open:
                    self._hear()
                    if self._is_fail_fast and self.first_failed and not self._is_ending:
                        self.end_all()
            except BaseException:
                self._end_now()
                raise

    def end_all(self) -> None:
        """Have all commands end that still run or wait; `follow` hears of it."""
        import ray

        self._is_ending = True
        for generator in self._open:
            ray.cancel(generator)

    @contextlib.contextmanager
    def _started(self) -> Iterator[None]:
        with self._group() as strategies:
            for run, strategy in zip(self.runs, strategies, strict=True):
                self._open[self._submit(run, strategy)] = run
            yield

    def _submit(self, run: CommandRun, strategy: Any) -> Any:
        import ray

        options = ray_options(run.command, self._nodes)
        if strategy is not None:
            del options["label_selector"]  # its place was chosen by it
            options["scheduling_strategy"] = strategy
        task = ray.remote(run_command).options(
            num_returns="streaming",
            max_retries=0,  # a command that ran once may have done something
            _generator_backpressure_num_objects=_UNREAD,
            name=f"wrap [{run.command.name}]",
            **options,
        )
        return task.remote(run.command, self._folder)

    @contextlib.contextmanager
    def _group(self) -> Iterator[list[Any]]:
        """Reserve a place for each command, all or none, if they are to run together."""
        if not self._is_concurrent:
            yield [None] * len(self.runs)
            return
        from ray.util.placement_group import placement_group, remove_placement_group
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        group = placement_group(
            [needs(run.command).for_ray() for run in self.runs],
            bundle_label_selector=[label_selector(run.command, self._nodes) for run in self.runs],
        )
        try:
            yield [
                PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=run.number)
                for run in self.runs
            ]
        finally:
            remove_placement_group(group)

    def _hear(self) -> None:
        """Take in what has come, one piece of each command, so that none drowns the others."""
        import ray

        if not ray.wait([*self._open], num_returns=1, timeout=_WAIT_SECONDS)[0]:
            self._tell_who_waits()
            return
        ready, _ = ray.wait([*self._open], num_returns=len(self._open), timeout=0)
        for generator in ready:
            run = self._open[generator]
            try:
                event: CommandEvent = ray.get(next(generator))
            except (StopIteration, ray.exceptions.RayError) as error:
                self._lose(run, error)
            else:
                self._take(run, event)
            if run.state.is_final:
                del self._open[generator]
        self._tell_who_waits()

    def _take(self, run: CommandRun, event: CommandEvent) -> None:
        if isinstance(event, Began):
            run.begin(event, self._names.get(event.node_id) or _name_of(event.node_id))
            self._listener.begins(run)
        elif isinstance(event, Printed):
            self._listener.prints(run, event.data)
        elif isinstance(event, Ended):
            unknown = "" if event.code is not None else "the process that guarded it was killed"
            self._end(run, self._state_of(event), event.code, event.why or unknown)

    def _state_of(self, event: Ended) -> CommandState:
        if event.code == 0:
            return CommandState.SUCCEEDED
        return CommandState.CANCELLED if self._is_ending else CommandState.FAILED

    def _lose(self, run: CommandRun, error: Exception) -> None:
        """Deal with a command of which nothing more will be heard."""
        import ray

        if self._is_ending:
            self._end(run, CommandState.CANCELLED, None)
        elif isinstance(error, ray.exceptions.TaskCancelledError):
            self._end(run, CommandState.FAILED, None, "somebody else cancelled it")
        else:
            self._end(run, CommandState.FAILED, None, _reason(error))

    def _end(self, run: CommandRun, state: CommandState, code: int | None, why: str = "") -> None:
        run.end(state, code, why)
        if state is CommandState.FAILED and self.first_failed is None:
            self.first_failed = run
        self._listener.ends(run)

    def _tell_who_waits(self) -> None:
        waiting = [run for run in self._open.values() if run.state is CommandState.WAITING]
        if waiting and not self._is_ending:
            self._listener.waits(waiting)

    def _end_now(self) -> None:
        """End everything, and wait for it; who does not end in time loses his worker."""
        import ray

        deadline = time.monotonic() + _CANCEL_SECONDS
        self.end_all()
        while self._open and time.monotonic() < deadline:
            self._hear()
        for generator in self._open:
            ray.cancel(generator, force=True)


def _name_of(node_id: str) -> str:
    """Return the name of a node that has come after the commands were started."""
    from ditk_ray.cluster.nodes import cluster_nodes

    return next((node.name for node in cluster_nodes() if node.id == node_id), node_id)


def _reason(error: Exception) -> str:
    import ray

    reasons = {
        ray.exceptions.NodeDiedError: "its node was lost",
        ray.exceptions.OutOfMemoryError: "Ray killed it, as its node was short of memory",
        ray.exceptions.WorkerCrashedError: "its Ray worker was killed",
        ray.exceptions.RuntimeEnvSetupError: "its Ray worker could not be set up",
    }
    known = next((text for kind, text in reasons.items() if isinstance(error, kind)), "")
    if known:
        return known
    last = str(error).strip().rpartition("\n")[2]
    return f"its Ray worker failed: {last}" if last else "its Ray worker ended without a word"
