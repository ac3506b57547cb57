from __future__ import annotations

import json

import pytest

from ditk_ray.cluster.nodes import Node, count_slots
from ditk_ray.cluster.worker_groups import (
    WORKER_GROUPS,
    WorkerGroup,
    nodes_to_come,
    worker_groups,
)
from ditk_ray.config.resources import TrialResources
from ditk_ray.errors import BadConfigError

HEAD = Node("head", {"CPU": 0.0}, group="headgroup")
GROUP = WorkerGroup("gpu", max=3, cpu=8, gpu=1, memory=32 * 1024**3)


def test_groups_are_read_from_the_environment():
    text = '[{"name": "gpu", "min": 0, "max": 3, "cpu": 8, "gpu": 1, "memory": "32G"}]'
    assert worker_groups({WORKER_GROUPS: text}) == (GROUP,)
    assert worker_groups({}) == worker_groups({WORKER_GROUPS: " "}) == ()


def test_nodes_that_may_come_are_counted_beside_those_that_are_there():
    present = [HEAD, Node("w1", {"CPU": 8.0, "GPU": 1.0, "memory": 3e10}, group="gpu")]
    (coming,) = nodes_to_come([GROUP], present)
    assert coming.to_come == 2
    assert str(coming) == "gpu (up to 2 more may come): 8 CPU, 1 GPU, 32 GiB memory"
    assert count_slots(TrialResources(cpu=4, gpu=0.5), [*present, coming]) == 2 + 2 * 2


def test_a_node_that_says_no_group_belongs_to_that_with_its_cpus_and_gpus():
    alike, other = Node("a", {"CPU": 8.0, "GPU": 1.0}), Node("b", {"CPU": 8.0})
    assert nodes_to_come([GROUP], [alike, other])[0].to_come == 2


def test_a_group_that_is_full_or_switched_off_adds_nothing():
    full = [Node(f"w{number}", {}, group="gpu") for number in range(4)]
    assert nodes_to_come([GROUP], full) == []
    assert nodes_to_come([WorkerGroup("off", max=0, cpu=1)], [HEAD]) == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[{", "is no JSON"),
        ("{}", "is no list"),
        ("[1]", "[0]: is no object"),
        ('[{"name": "a"}]', "[0].max: is missing"),
        ('[{"name": "a", "max": 1, "cpus": 2}]', "did you mean 'cpu'"),
        ('[{"name": "a", "max": 1.5}]', "[0].max: is 1.5"),
        ('[{"name": 1, "max": 1}]', "[0].name: is 1"),
        ('[{"name": "a", "max": 1, "gpu": -1}]', "[0].gpu: is -1"),
        ('[{"name": "a", "max": 1, "memory": "lots"}]', "[0].memory: is 'lots'"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_place(text, said):
    with pytest.raises(BadConfigError) as refused:
        worker_groups({WORKER_GROUPS: text})
    assert said in str(refused.value)


def test_all_that_is_wrong_is_told_at_once():
    groups = [{"name": "a"}, {"name": "b", "max": -1, "cpu": "x"}]
    with pytest.raises(BadConfigError) as refused:
        worker_groups({WORKER_GROUPS: json.dumps(groups)})
    assert len(refused.value.problems) == 3
