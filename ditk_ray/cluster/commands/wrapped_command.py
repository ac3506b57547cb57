"""One command that is to run on a cluster: its arguments, its share of a node, and which node."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from ditk_ray.cluster.nodes import Node
from ditk_ray.config.resources import TrialResources
from ditk_ray.errors import BadConfigError, Problem

PYTHON = "{python}"
"""Stands for the Python that Ray runs on the node, as the first of a command's arguments."""

SHELL_SIGNS = frozenset({"&&", "||", "|", ";", "&", ">", ">>", "<", "2>&1"})
"""What a person who writes it expects a shell for."""

ChoiceKind = Literal["any", "hostname", "ip", "node_id", "resource"]


@dataclass(frozen=True)
class NodeChoice:
    """Which nodes a command may run on."""

    kind: ChoiceKind = "any"
    value: str = ""

    def admits(self, node: Node) -> bool:
        """Say whether a node is among them; of nodes to come only the resources are known."""
        if self.kind == "hostname":
            return node.name == self.value
        if self.kind == "ip":
            return node.address == self.value
        if self.kind == "node_id":
            return node.id == self.value
        return self.kind == "any" or bool(node.resources.get(self.value))

    @property
    def is_by_name(self) -> bool:
        """Whether it names certain nodes, rather than what they have."""
        return self.kind in ("hostname", "ip", "node_id")

    def __str__(self) -> str:
        return "any node" if self.kind == "any" else f"a node with {self.kind} {self.value}"


@dataclass(frozen=True)
class WrappedCommand:
    """A command as an argument list, which no shell will see, and all that it is given.

    `folder` is where it runs, from the shipped or the present folder if relative; `env` is set
    besides what its node has.
    """

    name: str
    arguments: tuple[str, ...]
    resources: TrialResources = field(default_factory=TrialResources)
    node: NodeChoice = NodeChoice()
    env: Mapping[str, str] = field(default_factory=dict)
    folder: str = ""

    @property
    def shell_signs(self) -> tuple[str, ...]:
        """What among its arguments looks as if a shell was expected."""
        return tuple(item for item in self.arguments if item in SHELL_SIGNS)

    def __str__(self) -> str:
        shown = ["python", *self.arguments[1:]] if self.arguments[0] == PYTHON else self.arguments
        return shlex.join(shown)


def split_command(text: str) -> tuple[str, ...]:
    """Return the argument list that a text stands for; raises ValueError if there is none."""
    try:
        arguments = tuple(shlex.split(text))
    except ValueError as error:
        raise ValueError(f"cannot be split into arguments: {str(error).lower()}") from None
    if not arguments:
        raise ValueError("is empty")
    return arguments


def wrap_commands(
    texts: Sequence[str], resources: Sequence[TrialResources]
) -> tuple[WrappedCommand, ...]:
    """Return a command for each text, with as many resources in the same order.

    Raises `BadConfigError` with all texts that are no commands.
    """
    made, problems = [], []
    for number, (text, share) in enumerate(zip(texts, resources, strict=True)):
        try:
            made.append(WrappedCommand(str(number), split_command(text), share))
        except ValueError as error:
            problems.append(Problem(f"command {number} ({text!r})", str(error)))
    if problems:
        raise BadConfigError(problems)
    return tuple(made)
