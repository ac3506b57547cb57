from __future__ import annotations

import pytest

from ditk_ray.cluster.commands.command_placement import (
    divided,
    label_selector,
    ray_options,
    require_places,
    require_room_for_all,
)
from ditk_ray.cluster.commands.wrapped_command import NodeChoice, WrappedCommand
from ditk_ray.cluster.nodes import Node
from ditk_ray.config.resources import TrialResources
from ditk_ray.errors import DoesNotFitError

SMALL = Node("small", {"CPU": 4.0}, "id1", "10.0.0.1")
LARGE = Node("large", {"CPU": 16.0, "GPU": 2.0, "fast": 1.0}, "id2", "10.0.0.2")
TWIN = Node("small", {"CPU": 4.0}, "id3", "10.0.0.3")
NODES = [SMALL, LARGE, TWIN]
ANY = NodeChoice()


def command(name: str = "0", choice: NodeChoice = ANY, **amounts: float) -> WrappedCommand:
    return WrappedCommand(name, ("true",), TrialResources(**amounts), choice)


def test_a_command_that_fits_nowhere_is_refused_with_all_nodes_and_needs():
    by_name = command("b", NodeChoice("hostname", "smal"))
    with pytest.raises(DoesNotFitError) as refused:
        require_places([command(), command("a", cpu=17), by_name], NODES)
    text = str(refused.value)
    assert "[a] needs 17 CPU" in text and "[b] needs 1 CPU, on a node with hostname smal" in text
    assert "[0]" not in text
    assert "large: 16 CPU, 2 GPU" in text


def test_a_command_fits_on_nodes_that_may_come_and_needs_nothing_to_fit():
    coming = Node("gpu", {"CPU": 8.0, "GPU": 8.0}, to_come=2)
    require_places([command(gpu=8), command(cpu=0)], [SMALL, coming])


def test_commands_that_are_to_run_at_once_need_room_beside_each_other():
    require_room_for_all([command(cpu=4), command(cpu=12), command(cpu=4), command(cpu=4)], NODES)
    with pytest.raises(DoesNotFitError, match="no room for"):
        require_room_for_all([command(cpu=16), command(cpu=3, gpu=1)], NODES)
    on_small = [command(str(n), NodeChoice("ip", "10.0.0.1"), cpu=3) for n in range(2)]
    with pytest.raises(DoesNotFitError, match="cannot all run at once"):
        require_room_for_all(on_small, NODES)


def test_ray_is_told_of_a_node_by_its_label_or_by_a_trace_of_its_resource():
    assert label_selector(command(), NODES) == {}
    named = command(choice=NodeChoice("hostname", "small"))
    assert label_selector(named, NODES) == {"ray.io/node-id": "in(id1,id3)"}
    beside = ray_options(command(choice=NodeChoice("resource", "fast"), memory=5), NODES)
    assert 0 < beside["resources"]["fast"] < 0.01
    assert beside["memory"] == 5
    assert beside["label_selector"] == {}


def test_nodes_with_gpus_are_divided_where_there_are_any():
    assert divided(NODES, 4) == TrialResources(cpu=4, gpu=0.5)
    assert divided([SMALL], 8) == TrialResources(cpu=0.5)
