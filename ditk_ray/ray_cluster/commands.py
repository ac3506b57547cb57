"""Commands that are to run on a cluster: as words or in a file of tasks, and on which nodes."""

from __future__ import annotations

import contextlib
import math
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Self

import pydantic
from pydantic import AfterValidator, BeforeValidator, Field

from ditk_ray.config.checked import Text, Written, check, read_file
from ditk_ray.config.resources import TrialResources, parse_resources
from ditk_ray.errors import DoesNotFitError
from ditk_ray.kube.yaml_text import read_yaml
from ditk_ray.ray_cluster.nodes import RAYS_OWN, Amount, Node, share_nodes, show_nodes
from ditk_ray.util.suggest import did_you_mean

_A_TRACE = 0.001
"""What a command takes of a resource that it only has to be beside."""
SHELL_SIGNS = ("&&", "||", "|", ";", "&", ">", ">>", "<", "2>&1")
"""Arguments by which one sees that a shell was expected."""
_CHOICES = ("hostname", "ip", "node_id", "resource")


def split_command(text: str) -> tuple[str, ...]:
    """Return the arguments of a command line; raises ValueError if there is none."""
    try:
        arguments = tuple(shlex.split(text))
    except ValueError as error:
        raise ValueError(f"{text!r} cannot be split: {str(error).lower()}") from None
    if not arguments:
        raise ValueError(f"{text!r} is not a command")
    return arguments


def amount_of(key: str) -> Callable[[Any], Any]:
    """Return what reads `cpu`, `gpu` or `memory` of a command; `10*1024*1024` is an amount, too."""

    def read(given: Any) -> Any:
        with contextlib.suppress(ValueError):  # it has a unit, or is wrong
            if isinstance(given, str):
                given = math.prod(float(factor) for factor in given.split("*"))
        return getattr(parse_resources({key: given}), key)

    return read


def _argument_list(given: Any) -> Any:
    is_text = isinstance(given, str) and given
    return split_command(given) if is_text else given or ()


def _node(given: Any) -> dict[str, str]:
    if not isinstance(given, Mapping):
        raise ValueError(f"is {given!r}; it has to be like {{hostname: NAME}}")
    # Isaac Lab's files have the kind once more, in `specific`.
    named = {key: str(value) for key, value in given.items() if key != "specific" and value}
    kind = given.get("specific") or next(iter(named), "any")
    for key, known in [*((key, _CHOICES) for key in named), (kind, ("any", *_CHOICES))]:
        if key not in known:
            raise ValueError(f"{key!r} is not known; {did_you_mean(str(key), known)}")
    if kind == "any":
        return {}
    if list(named) != [kind]:
        raise ValueError(f"has to have {kind}, and no other: {{{kind}: NAME}}")
    if kind == "resource":
        _custom_name(named[kind])
    return named


def _custom_name(name: str) -> str:
    if name in RAYS_OWN:
        what = "what every node has is asked for by num_cpus, num_gpus and memory"
        raise ValueError(f"is {name!r}; {what}")
    return name


def _variable(name: str) -> str:
    if name == "CUDA_VISIBLE_DEVICES":
        raise ValueError("is set by what num_gpus gives to the task")
    return name


Arguments = Annotated[tuple[Text, ...], BeforeValidator(_argument_list)]
Customs = dict[Annotated[str, AfterValidator(_custom_name)], Amount]
Variables = dict[Annotated[str, AfterValidator(_variable)], Text]


class WrappedCommand(Written):
    """A command as an argument list, which no shell will see, and all that it is given.

    It is `command`, or the Python that Ray runs on its node with `py_args`. `node` says which
    nodes it may run on, by one key such as `hostname`; `cwd` is where it runs, from the shipped or
    the present folder if relative; `env` is added to its node's environment.
    """

    name: str = ""
    command: Arguments = ()
    py_args: Arguments = ()
    num_cpus: Annotated[float, BeforeValidator(amount_of("cpu"))] = 1.0
    num_gpus: Annotated[float, BeforeValidator(amount_of("gpu"))] = 0.0
    memory: Annotated[int | None, BeforeValidator(amount_of("memory"))] = None
    resources: Customs = Field(default={})
    node: Annotated[dict[str, str], BeforeValidator(_node)] = Field(default={})
    env: Variables = Field(default={})
    cwd: str = ""

    @classmethod
    def sharing(cls, share: TrialResources, **given: Any) -> Self:
        return cls(num_cpus=share.cpu, num_gpus=share.gpu, memory=share.memory, **given)

    @pydantic.model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, given: Any) -> Any:
        if not isinstance(given, Mapping):
            return given
        return {key: value for key, value in given.items() if value is not None}

    @pydantic.model_validator(mode="after")
    def _has_one_program(self) -> Self:
        if bool(self.command) == bool(self.py_args):
            hint = "command: python a.py, or py_args: a.py for Ray's own Python"
            raise ValueError(f"has to have either command or py_args\n    {hint}")
        return self

    @property
    def arguments(self) -> tuple[str, ...]:
        return self.command or (sys.executable, *self.py_args)

    @property
    def share(self) -> TrialResources:
        return TrialResources(self.num_cpus, self.num_gpus, self.memory, self.resources)

    @property
    def needs(self) -> TrialResources:
        """What Ray has to reserve for it, its node's resource included."""
        beside = {self.node["resource"]: _A_TRACE} if "resource" in self.node else {}
        return replace(self.share, custom=beside | self.resources)

    @property
    def names_node(self) -> bool:
        """Whether it names certain nodes, rather than what they have."""
        return bool(self.node) and "resource" not in self.node

    def may_run_on(self, node: Node) -> bool:
        """Say whether a node was chosen; of nodes to come only the resources are known."""
        known = {"hostname": node.name, "ip": node.address, "node_id": node.id}
        return all(
            bool(node.resources.get(value)) if kind == "resource" else known[kind] == value
            for kind, value in self.node.items()
        )

    def describe_needs(self) -> str:
        where = [f", on a node with {kind} {value}" for kind, value in self.node.items()]
        return f"{self.share}{''.join(where)}"

    def __str__(self) -> str:
        return shlex.join(self.command or ("python", *self.py_args))


class TaskFile(Written):
    """The tasks of a file; with `concurrent` none may begin before all can."""

    concurrent: pydantic.StrictBool = False
    tasks: list[WrappedCommand] = Field(min_length=1)
    pip: Any = None
    py_modules: Any = None

    @pydantic.field_validator("pip", "py_modules")
    @classmethod
    def _is_empty(cls, given: Any) -> None:
        if given:  # as in Isaac Lab's files
            hint = "packages belong in the nodes' image, and code is shipped by `ditk-ray submit`"
            raise ValueError(f"is not supported\n    {hint}")

    @pydantic.field_validator("tasks")
    @classmethod
    def _named(cls, tasks: list[WrappedCommand]) -> list[WrappedCommand]:
        names = [task.name or str(number) for number, task in enumerate(tasks)]
        if repeated := next((name for name in names if names.count(name) > 1), None):
            raise ValueError(f"have the name {repeated!r} more than once")
        return [
            task.model_copy(update={"name": name}) for task, name in zip(tasks, names, strict=True)
        ]

    @pydantic.model_validator(mode="after")
    def _reserves_places(self) -> Self:
        if self.concurrent and not all(task.share.for_ray() for task in self.tasks):
            raise ValueError("tasks that run at once reserve their places: num_cpus above 0")
        return self


def read_task_file(path: Path) -> TaskFile:
    """Read and check a file of tasks; raises `BadConfigError` with all that is wrong in it."""
    given = read_file("--task_cfg", path, read_yaml)
    known = [*TaskFile.model_fields, *WrappedCommand.model_fields]
    hint = "`ditk-ray wrap --help` shows a file of tasks"
    file: TaskFile = check(TaskFile, given, f"{path}: ", known, hint)
    return file


def require_room(commands: Sequence[WrappedCommand], nodes: Sequence[Node], at_once: bool) -> None:
    """Raise `DoesNotFitError` with the commands that fit on no node, or not `at_once` on all.

    The largest are placed first, each on the first node that has room left for it.
    """

    def size(command: WrappedCommand) -> tuple[float, ...]:
        return (bool(command.node), command.num_gpus, command.num_cpus, command.memory or 0)

    rooms = [(node, dict(node.resources)) for node in nodes for _ in range(node.to_come or 1)]
    misfits = []
    for command in sorted(commands, key=size, reverse=True):
        wanted = command.needs.for_ray()
        admitted = (room for node, room in rooms if command.may_run_on(node))
        for room in admitted:
            if all(room.get(name, 0.0) + 1e-9 >= need for name, need in wanted.items()):
                room.update({name: room[name] - need for name, need in wanted.items() if at_once})
                break
        else:
            misfits.append(
                f"    no room for [{command.name}], which needs {command.describe_needs()}"
            )
    if misfits:
        what, hint = "some commands fit on no node", "ask for less, or say --may_grow if the "
        hint += "cluster starts larger nodes by itself"
        if at_once:
            what = f"the {len(commands)} commands cannot all run at once"
            hint = "leave out `concurrent: true` to have them wait for each other"
        listed = "\n".join(misfits)
        raise DoesNotFitError(
            f"{what}; nothing was started\n{listed}\nthe nodes are:\n{show_nodes(nodes)}\n{hint}"
        )


def ray_options(command: WrappedCommand, nodes: Sequence[Node]) -> dict[str, Any]:
    """Return the options of the Ray task that runs a command; a node is chosen by its label."""
    wanted = command.needs
    ids = [node.id for node in nodes if node.id and command.may_run_on(node)]
    return {
        "num_cpus": wanted.cpu,
        "num_gpus": wanted.gpu,
        "memory": wanted.memory,
        "resources": dict(wanted.custom),
        "label_selector": (
            {"ray.io/node-id": f"in({','.join(ids)})"} if command.names_node else {}
        ),
    }


def divided(nodes: Sequence[Node], workers: int) -> TrialResources:
    """Return a command's share of a node, if there are any of one with GPUs, with so many on it."""
    with_gpus = [node for node in nodes if node.resources.get("GPU")]
    return share_nodes(TrialResources(), with_gpus or nodes, workers)
