"""`ditk-ray wrap`: run single commands on a cluster, each with resources of its own."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ditk_ray.cli.object_output import tell
from ditk_ray.cli.ray_arguments import add_ray, chosen_ray, chosen_run_mode
from ditk_ray.cli.sweep_arguments import add_format, positive
from ditk_ray.config.storage import is_submitted_job
from ditk_ray.errors import BadConfigError, Problem

if TYPE_CHECKING:
    from ditk_ray.cluster.commands.task_file import TaskFile
    from ditk_ray.cluster.commands.wrapped_command import WrappedCommand
    from ditk_ray.cluster.nodes import Node
    from ditk_ray.config.resources import TrialResources

_EXAMPLES = """\
examples:
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

A file of tasks:
  concurrent: false             # true: none begins before all can
  tasks:
    - name: train
      command: python train.py --seed 1      # or py_args: train.py, for Ray's own Python
      num_cpus: 2
      num_gpus: 0.5
      memory: 4G
      node: {hostname: gpu-1}   # or ip, node_id, resource (a node that has some of it)
      env: {STAGE: test}
      cwd: experiments

Exit code: 0 if all succeeded, else that of the first that failed (1 if it has none), 2 if the
input is wrong (then nothing was started), 130 after Ctrl-C.
"""


def add_command(commands: Any) -> None:
    """Add `wrap` to the parser's commands."""
    parser = commands.add_parser(
        "wrap",
        help="run single commands on a cluster, each with its own resources",
        description="Run commands on Ray, in parallel where they fit, each with its own resources.",
        epilog=_EXAMPLES,
    )
    parser.set_defaults(run=run)
    parser.add_argument("commands", metavar="COMMAND", nargs="*", help="after --, each quoted")
    parser.add_argument("--task_cfg", metavar="FILE", type=Path, help="a YAML file of tasks")
    parser.add_argument(
        "--test", action="store_true", help="test on all nodes that commands are kept apart"
    )
    share = parser.add_argument_group("what each command has: one value for all, or one for each")
    share.add_argument("--cpu", metavar="N", type=float, nargs="+", help="(default: 1)")
    share.add_argument("--gpu", metavar="N", type=float, nargs="+", help="(default: 0)")
    share.add_argument("--memory", metavar="SIZE", nargs="+", help="(default: no limit)")
    share.add_argument(
        "--num_workers",
        metavar="N",
        type=positive,
        nargs="+",
        help="instead: divide each node, or each with GPUs if there are any, among N commands",
    )
    where = parser.add_argument_group("where and how they run")
    add_ray(where)
    where.add_argument(
        "--may_grow",
        action="store_true",
        help="the cluster starts nodes by itself: let commands wait that fit on none yet",
    )
    where.add_argument("--fail_fast", action="store_true", help="the first that fails ends all")
    where.add_argument(
        "--log_dir", metavar="DIR", type=Path, help="(default: ditk_ray_wrapped/ and the time)"
    )
    add_format(parser)


def run(given: argparse.Namespace) -> int:
    """Run the commands, or the test, that the arguments ask for."""
    _check(given)
    tasks = _tasks(given)
    from ditk_ray.cluster.ray_session import quiet_ray

    quiet_ray()
    with chosen_ray(given):
        if given.test:
            return _test(given)
        return _run(given, tasks)


def _run(given: argparse.Namespace, tasks: TaskFile | None) -> int:
    from ditk_ray.cli.wrap_output import RunDisplay, print_summary
    from ditk_ray.cluster.commands.command_logs import make_log_folder
    from ditk_ray.cluster.commands.command_placement import require_places, require_room_for_all
    from ditk_ray.cluster.commands.wrapped_run import WrappedRun

    nodes = _nodes()
    commands = tasks.commands if tasks else _commands(given, nodes)
    is_concurrent = tasks is not None and tasks.is_concurrent
    # A node that is named has to be there, whatever else may come.
    require_places([one for one in commands if one.node.is_by_name or not given.may_grow], nodes)
    if is_concurrent and not given.may_grow:
        require_room_for_all(commands, nodes)
    _warn_of_shells(commands)
    display = RunDisplay(make_log_folder(given.log_dir), given.format)
    tell(f"{len(commands)} commands; their output is kept in {display.folder}")
    started = WrappedRun(
        commands,
        nodes,
        display,
        folder=_folder(),
        is_concurrent=is_concurrent,
        is_fail_fast=given.fail_fast,
    )
    try:
        started.follow()
    finally:
        print_summary(started, display, given.format)
    failed = started.first_failed
    return 0 if failed is None else failed.exit_code or 1


def _test(given: argparse.Namespace) -> int:
    from ditk_ray.cli.wrap_output import WaitingLine, print_views
    from ditk_ray.cluster.commands.isolation_check import ProbeRun, find_faults, probes
    from ditk_ray.cluster.nodes import cluster_nodes

    nodes = cluster_nodes()  # those that may come have no workers to test
    resources = _shares(given, 1)[0] if _has_resources(given) else None
    commands = probes(nodes, resources, given.num_workers[0] if given.num_workers else None)
    if not commands:
        listed = ", ".join(map(str, nodes))
        raise BadConfigError(Problem("--test", f"no node has room for a worker: {listed}"))
    tell(f"{len(commands)} workers at once, on all nodes")
    probe_run = ProbeRun(commands, nodes, WaitingLine().show)
    probe_run.follow()
    faults = [f"[{run.number}] on {run.node}: {run.why or 'failed'}" for run in probe_run.failed]
    faults += find_faults(probe_run.views)
    print_views(probe_run.views, faults, given.format)
    return 1 if faults else 0


def _nodes() -> list[Node]:
    """Return the nodes that are there and those that may come."""
    from ditk_ray.cluster.nodes import cluster_nodes
    from ditk_ray.cluster.worker_groups import nodes_to_come, worker_groups

    present = cluster_nodes()
    return [*present, *nodes_to_come(worker_groups(), present)]


def _check(given: argparse.Namespace) -> None:
    """Refuse what does not go together, all of it at once."""
    problems = []
    chosen = [bool(given.commands), given.task_cfg is not None, given.test]
    if sum(chosen) != 1:
        hint = """such as `ditk-ray wrap --cpu 2 -- "python a.py"`"""
        problems.append(Problem("wrap", "needs commands, --task_cfg or --test, one of them", hint))
    if given.num_workers and _has_resources(given):
        problems.append(
            Problem("--num_workers", "does not go together with --cpu, --gpu, --memory")
        )
    if given.task_cfg and (given.num_workers or _has_resources(given)):
        hint = "write num_cpus, num_gpus and memory into the file"
        problems.append(Problem("--task_cfg", "has the resources of each task", hint))
    count = 1 if given.test else len(given.commands)
    for name in ("cpu", "gpu", "memory", "num_workers"):
        values = getattr(given, name)
        if values and sum(chosen) == 1 and not given.task_cfg and len(values) not in (1, count):
            what = f"has {len(values)} values for {count} commands"
            problems.append(Problem(f"--{name}", what, "give one for all, or one for each"))
    if problems:
        raise BadConfigError(problems)
    chosen_run_mode(given)


def _has_resources(given: argparse.Namespace) -> bool:
    return any(getattr(given, name) for name in ("cpu", "gpu", "memory"))


def _tasks(given: argparse.Namespace) -> TaskFile | None:
    """Read all that can be wrong before Ray, which takes seconds, is there."""
    from ditk_ray.cluster.commands.task_file import read_task_file

    if given.task_cfg:
        return read_task_file(given.task_cfg)
    if given.commands:
        from ditk_ray.cluster.commands.wrapped_command import wrap_commands

        wrap_commands(given.commands, _shares(given, len(given.commands)))
    return None


def _commands(given: argparse.Namespace, nodes: Sequence[Node]) -> Sequence[WrappedCommand]:
    from ditk_ray.cluster.commands.command_placement import divided
    from ditk_ray.cluster.commands.wrapped_command import wrap_commands

    count = len(given.commands)
    if given.num_workers:
        shares = [divided(nodes, number) for number in _spread(given.num_workers, count)]
    else:
        shares = _shares(given, count)
    return wrap_commands(given.commands, shares)


def _shares(given: argparse.Namespace, count: int) -> list[TrialResources]:
    """Return the resources of each command; raises `BadConfigError` with all that is wrong."""
    from ditk_ray.config.resources import parse_resources

    columns = {
        "cpu": _spread(given.cpu or [1.0], count),
        "gpu": _spread(given.gpu or [0.0], count),
        "memory": _spread(given.memory or [None], count),
    }
    problems = []
    for name, values in columns.items():
        for value in dict.fromkeys(values):
            try:
                parse_resources({name: value})
            except ValueError as error:
                problems.append(Problem(f"--{name}", str(error)))
    if problems:
        raise BadConfigError(problems)
    rows = zip(*columns.values(), strict=True)
    return [parse_resources(dict(zip(columns, row, strict=True))) for row in rows]


def _spread(values: Sequence[Any], count: int) -> list[Any]:
    return list(values) if len(values) == count else [values[0]] * count


def _folder() -> str | None:
    """Return where commands run: here, or, in a submitted job, where its code is."""
    return None if is_submitted_job() else str(Path.cwd())


def _warn_of_shells(commands: Sequence[WrappedCommand]) -> None:
    for command in commands:
        if command.shell_signs:
            tell(
                f"[{command.name}] {' '.join(command.shell_signs)} is an argument here, for there "
                "is no shell: to have one, write \"sh -c '...'\""
            )
