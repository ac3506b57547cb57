"""`ditk-ray wrap`: run single commands on a cluster, each with its own resources."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from ditk_ray.cli.flags import Command, Format, format_option
from ditk_ray.cli.output import note
from ditk_ray.config.options import RaySettings, is_submitted_job, option, options_of, positive
from ditk_ray.config.resources import TrialResources
from ditk_ray.errors import BadConfigError, Problem
from ditk_ray.ray_cluster import commands as wrapped
from ditk_ray.ray_cluster.commands import TaskFile, WrappedCommand
from ditk_ray.ray_cluster.nodes import Node, cluster_nodes, nodes_to_come, worker_groups
from ditk_ray.ray_cluster.session import chosen_ray, quiet_ray

_HOW = "where and how they run"
_share = partial(
    option,
    default=[],
    nargs="+",
    group="what each command has: one value for all, or one for each",
)


class Wrap(Command):
    """Run commands on Ray, in parallel where they fit, each with its own resources.

      ditk-ray wrap -- "python a.py" "python b.py --seed 1"
      ditk-ray wrap --cpu 2 --gpu 0.5 --memory 4G -- "python a.py" "python b.py"
      ditk-ray wrap --cpu 2 1 --gpu 0.5 1 -- "python a.py" "python b.py"
      ditk-ray wrap --num_workers 4 --ray_address 10.0.0.1:6379 -- "python a.py" "python b.py"
      ditk-ray wrap --task_cfg tasks.yaml
      ditk-ray wrap --test

    Each quoted command is split into arguments and run without a shell ("sh -c '...'" is one). It
    runs as soon as a node has room, on cores of its own, sees its GPUs and no others, and cannot
    allocate more memory than it was given. A share of a GPU is in DITK_RAY_GPU_FRACTION: a program
    has to keep its use of GPU memory to it by itself.

    A file has a list, `tasks`, and perhaps `concurrent: true` (none begins before all can). A
    task has command (or py_args, for Ray's own Python), and perhaps name, num_cpus, num_gpus,
    memory, env, cwd, and node: its hostname, ip, node_id, or a resource that it has.

    Exit code: 0 if all succeeded, else that of the first that failed (1 if it has none), 2 if the
    input is wrong (then nothing was started), 130 after Ctrl-C.
    """

    usage: ClassVar = "ditk-ray wrap [OPTIONS] -- COMMAND ..."
    commands: list[tuple[str, ...]] = option(
        "after --, each quoted", [], positional=True, metavar="COMMAND", parse=wrapped.split_command
    )
    task_cfg: Path | None = option("a YAML file of tasks", metavar="FILE")
    test: bool = option("test on all nodes that commands are kept apart", False)
    cpu: list[float] = _share("(default: 1)", metavar="N", parse=wrapped.amount_of("cpu"))
    gpu: list[float] = _share("(default: 0)", metavar="N", parse=wrapped.amount_of("gpu"))
    memory: list[int] = _share(
        "(default: no limit)", metavar="SIZE", parse=wrapped.amount_of("memory")
    )
    num_workers: list[int] = _share(
        "instead: divide each node, or each with GPUs if there are any, among N commands",
        metavar="N",
        parse=positive,
    )
    ray: RaySettings = options_of(RaySettings, _HOW)
    may_grow: bool = option(
        "the cluster adds nodes by itself: commands that fit on no node yet wait",
        False,
        group=_HOW,
    )
    fail_fast: bool = option("end all commands when one fails", False, group=_HOW)
    log_dir: Path | None = option(
        "(default: ditk_ray_wrapped/ and the time)", metavar="DIR", group=_HOW
    )
    format: Format = format_option()

    @property
    def count(self) -> int:
        return len(self.commands) or 1

    @property
    def has_resources(self) -> bool:
        return bool(self.cpu or self.gpu or self.memory)

    def run(self) -> int:
        # All that can be wrong is found before Ray, which takes seconds, is there.
        if problems := list(self._problems()):
            raise BadConfigError(problems)
        self.ray.chosen_mode()
        tasks = wrapped.read_task_file(self.task_cfg) if self.task_cfg else None
        quiet_ray()
        with chosen_ray(self.ray):
            return _test(self) if self.test else _run(self, tasks)

    def _problems(self) -> Iterator[Problem]:
        is_one = [bool(self.commands), self.task_cfg is not None, self.test].count(True) == 1
        if not is_one:
            hint = """such as `ditk-ray wrap --cpu 2 -- "python a.py"`"""
            yield Problem("wrap", "needs exactly one of commands, --task_cfg and --test", hint)
        if self.num_workers and self.has_resources:
            yield Problem("--num_workers", "cannot be combined with --cpu, --gpu, --memory")
        if self.task_cfg and (self.num_workers or self.has_resources):
            hint = "write num_cpus, num_gpus and memory into the file"
            yield Problem("--task_cfg", "has the resources of each task", hint)
        for name in ("cpu", "gpu", "memory", "num_workers"):
            values = getattr(self, name)
            if values and is_one and not self.task_cfg and len(values) not in (1, self.count):
                what = f"has {len(values)} values for {self.count} commands"
                yield Problem(f"--{name}", what, "give one for all, or one for each")

    def shares(self) -> list[TrialResources]:
        columns: list[list[Any]] = [self.cpu or [1.0], self.gpu or [0.0], self.memory or [None]]
        rows = zip(*(_spread(values, self.count) for values in columns), strict=True)
        return [TrialResources(*row) for row in rows]


def _run(given: Wrap, tasks: TaskFile | None) -> int:
    # These load Ray.
    from ditk_ray.cli.wrap_output import RunDisplay, print_summary
    from ditk_ray.ray_cluster.wrap import WrappedRun, make_log_folder

    present = cluster_nodes()
    nodes = [*present, *nodes_to_come(worker_groups(), present)]
    commands = tasks.tasks if tasks else _commands(given, nodes)
    is_concurrent = tasks is not None and tasks.concurrent
    # A node that is named has to exist already, even if the cluster may grow.
    checked = [one for one in commands if one.names_node or not given.may_grow]
    wrapped.require_room(checked, nodes, at_once=is_concurrent and not given.may_grow)
    _warn_of_shells(commands)
    display = RunDisplay(make_log_folder(given.log_dir), given.format)
    note(f"{len(commands)} commands; their output is kept in {display.folder}")
    started = WrappedRun(
        commands,
        nodes,
        display,
        # A submitted job's commands run where its code is.
        folder=None if is_submitted_job() else str(Path.cwd()),
        is_concurrent=is_concurrent,
        is_fail_fast=given.fail_fast,
    )
    try:
        started.follow()
    finally:
        print_summary(started, display, given.format)
    failed = started.first_failed
    return 0 if failed is None else failed.exit_code or 1


def _test(given: Wrap) -> int:
    from ditk_ray.cli.wrap_output import WaitingLine, print_views  # imports Ray
    from ditk_ray.ray_cluster.isolation import ProbeRun, find_faults, probes

    nodes = cluster_nodes()  # those that may come have no workers to test
    resources = given.shares()[0] if given.has_resources else None
    commands = probes(nodes, resources, given.num_workers[0] if given.num_workers else None)
    if not commands:
        listed = ", ".join(map(str, nodes))
        raise BadConfigError(Problem("--test", f"no node has room for a worker: {listed}"))
    note(f"{len(commands)} workers at once, on all nodes")
    probe_run = ProbeRun(commands, nodes, WaitingLine().show)
    probe_run.follow()
    faults = [f"[{run.number}] on {run.node}: {run.why or 'failed'}" for run in probe_run.failed]
    faults += find_faults(probe_run.views)
    print_views(probe_run.views, faults, given.format)
    return 1 if faults else 0


def _commands(given: Wrap, nodes: Sequence[Node]) -> Sequence[WrappedCommand]:
    workers = _spread(given.num_workers, given.count) if given.num_workers else ()
    shares = [wrapped.divided(nodes, number) for number in workers] or given.shares()
    return [
        WrappedCommand.sharing(share, name=str(number), command=words)
        for number, (words, share) in enumerate(zip(given.commands, shares, strict=True))
    ]


def _spread(values: Sequence[Any], count: int) -> list[Any]:
    return list(values) if len(values) == count else [values[0]] * count


def _warn_of_shells(commands: Sequence[WrappedCommand]) -> None:
    for command in commands:
        if signs := [word for word in command.arguments if word in wrapped.SHELL_SIGNS]:
            note(
                f"[{command.name}] {' '.join(signs)} is passed as an argument, "
                "as no shell runs the command: for a shell, write \"sh -c '...'\""
            )
