"""What Ray runs for a wrapped command, on the node that it chose: a task that tells as it goes."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ditk_ray.cluster.commands.command_cores import CoreLease, lease_cores
from ditk_ray.cluster.commands.command_process import CommandOrder, CommandProcess
from ditk_ray.cluster.commands.wrapped_command import PYTHON, WrappedCommand
from ditk_ray.config.resources import TrialResources

GPU_FRACTION = "DITK_RAY_GPU_FRACTION"
"""The environment variable that tells a command its share of each GPU that it sees.

Nothing can hold a foreign program to it: it has to keep to it by itself.
"""

_OF_THE_WORKER = frozenset(
    {
        *("RAY_JOB_ID", "RAY_RAYLET_PID", "RAY_CLIENT_MODE", "RAY_LD_PRELOAD_ON_WORKERS"),
        *("SPT_NOENV", "PYTHONBREAKPOINT"),
    }
)
"""What Ray sets for its own processes, and would confuse others."""


@dataclass(frozen=True)
class Began:
    """A command begins, with these cores and GPUs of its node."""

    node_id: str
    cores: tuple[int, ...]
    gpus: tuple[str, ...]


@dataclass(frozen=True)
class Printed:
    """A command has printed something."""

    data: bytes


@dataclass(frozen=True)
class Ended:
    """A command is over; `code` is negative for a signal, None if nobody knows."""

    code: int | None
    why: str


CommandEvent = Began | Printed | Ended


def run_command(command: WrappedCommand, folder: str | None) -> Iterator[CommandEvent]:
    """Run a command to its end on this node, in a Ray task with its resources.

    `folder` is where it runs, if it does not say so itself; None is where the worker is, which
    is the shipped code. However this generator ends, nothing of the command is left then.
    """
    import ray

    gpus = tuple(sorted((str(gpu) for gpu in ray.get_gpu_ids()), key=lambda gpu: (len(gpu), gpu)))
    lease = lease_cores(command.resources.cpu)
    try:
        process = CommandProcess(_order(command, folder, lease, gpus), lease)
    finally:
        lease.close()  # from here on its keeper holds it
    try:
        yield Began(ray.get_runtime_context().get_node_id(), lease.cores, gpus)
        for data in process.output():
            yield Printed(data)
    finally:
        process.stop()
        lease.forget()
    yield Ended(process.exit_code, process.why)


def command_environment(
    given: Mapping[str, str], resources: TrialResources, gpus: Sequence[str]
) -> dict[str, str]:
    """Return a worker's environment as a command with these resources is to see it."""
    environment = {name: value for name, value in given.items() if name not in _OF_THE_WORKER}
    for name in ("OMP", "MKL", "OPENBLAS", "NUMEXPR"):
        environment[f"{name}_NUM_THREADS"] = str(resources.threads)
    environment["CUDA_VISIBLE_DEVICES"] = ",".join(gpus)
    if resources.gpu:
        environment[GPU_FRACTION] = f"{resources.gpu / math.ceil(resources.gpu):g}"
    # `python` is the one that Ray has here, unless the node was set up to have another.
    home = str(Path(sys.executable).parent)
    known = environment.get("PATH", os.defpath).split(os.pathsep)
    if home not in known:
        environment["PATH"] = os.pathsep.join([home, *known])
    return environment


def _order(
    command: WrappedCommand, folder: str | None, lease: CoreLease, gpus: Sequence[str]
) -> CommandOrder:
    first, *others = command.arguments
    environment = command_environment(os.environ, command.resources, gpus)
    return CommandOrder(
        arguments=(sys.executable if first == PYTHON else first, *others),
        folder=str(Path(folder or Path.cwd(), command.folder)),
        env={**environment, **command.env},
        cores=lease.cores,
        memory=command.resources.memory,
    )
