"""Where wrapped commands can run: what is refused at once, and what Ray is told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ditk_ray.cluster.commands.wrapped_command import WrappedCommand
from ditk_ray.cluster.nodes import Node, share_nodes
from ditk_ray.config.resources import TrialResources
from ditk_ray.errors import DoesNotFitError

_NODE_LABEL = "ray.io/node-id"
_A_TRACE = 0.001
"""What a command takes of a resource that it only has to be beside."""


def require_places(commands: Sequence[WrappedCommand], nodes: Sequence[Node]) -> None:
    """Raise `DoesNotFitError` if a command fits on no node, now or ever; tells all of them."""
    homeless = [command for command in commands if not _homes(command, nodes)]
    if homeless:
        needs = "\n".join(f"    [{one.name}] needs {show_need(one)}" for one in homeless)
        raise DoesNotFitError(
            f"no node has room for what some commands need; nothing was started\n{needs}\n"
            f"the nodes are:\n{_show(nodes)}\n"
            "ask for less, or say --may_grow if the cluster starts larger nodes by itself"
        )


def require_room_for_all(commands: Sequence[WrappedCommand], nodes: Sequence[Node]) -> None:
    """Raise `DoesNotFitError` if the commands cannot all run at the same time.

    The largest are placed first, each on the first node that has room left for it.
    """
    left = [dict(node.resources) for node in nodes for _ in range(node.to_come or 1)]
    owners = [node for node in nodes for _ in range(node.to_come or 1)]
    for command in sorted(commands, key=_size, reverse=True):
        wanted = needs(command).for_ray()
        free = (
            room
            for room, node in zip(left, owners, strict=True)
            if command.node.admits(node)
            and all(room.get(name, 0.0) + 1e-9 >= need for name, need in wanted.items())
        )
        room = next(free, None)
        if room is None:
            raise DoesNotFitError(
                f"the {len(commands)} commands cannot all run at once; nothing was started\n"
                f"    beside the others there is no room for [{command.name}], which needs "
                f"{show_need(command)}\nthe nodes are:\n{_show(nodes)}\n"
                "leave out `concurrent: true` to have them wait for each other"
            )
        for name, need in wanted.items():
            room[name] -= need


def needs(command: WrappedCommand) -> TrialResources:
    """Return what Ray has to reserve for a command, its node's resource included."""
    if command.node.kind != "resource":
        return command.resources
    custom = {command.node.value: _A_TRACE, **command.resources.custom}
    return replace(command.resources, custom=custom)


def show_need(command: WrappedCommand) -> str:
    """Write what a command needs, and of which node."""
    where = "" if command.node.kind == "any" else f", on {command.node}"
    return f"{command.resources}{where}"


def ray_options(command: WrappedCommand, nodes: Sequence[Node]) -> dict[str, Any]:
    """Return the options of the Ray task that runs a command."""
    wanted = needs(command)
    options: dict[str, Any] = {
        "num_cpus": wanted.cpu,
        "num_gpus": wanted.gpu,
        "resources": dict(wanted.custom),
        "label_selector": label_selector(command, nodes),
    }
    return {**options, "memory": wanted.memory} if wanted.memory else options


def label_selector(command: WrappedCommand, nodes: Sequence[Node]) -> dict[str, str]:
    """Return by which of Ray's labels the nodes are chosen that a command names, if it does."""
    if not command.node.is_by_name:
        return {}
    ids = [node.id for node in nodes if node.id and command.node.admits(node)]
    return {_NODE_LABEL: f"in({','.join(ids)})"}


def divided(nodes: Sequence[Node], workers: int) -> TrialResources:
    """Return the share of a command if each node is divided among so many of them.

    Where some nodes have GPUs, only those count.
    """
    with_gpus = [node for node in nodes if node.resources.get("GPU")]
    return share_nodes(TrialResources(), with_gpus or nodes, workers)


def _homes(command: WrappedCommand, nodes: Sequence[Node]) -> list[Node]:
    wanted = needs(command)
    return [
        node
        for node in nodes
        if command.node.admits(node) and (node.holds(wanted) or not wanted.for_ray())
    ]


def _size(command: WrappedCommand) -> tuple[float, ...]:
    given = command.resources
    return (command.node.kind != "any", given.gpu, given.cpu, given.memory or 0)


def _show(nodes: Sequence[Node]) -> str:
    return "\n".join(f"    {node}" for node in nodes) or "    none at all"
