from __future__ import annotations

import sys
from pathlib import Path

import pytest

from ditk_ray.config.resources import TrialResources
from ditk_ray.errors import BadConfigError, DoesNotFitError
from ditk_ray.ray_cluster.commands import (
    TaskFile,
    WrappedCommand,
    amount_of,
    divided,
    ray_options,
    read_task_file,
    require_room,
)
from ditk_ray.ray_cluster.nodes import Node

SMALL = Node("small", {"CPU": 4.0}, "id1", "10.0.0.1")
LARGE = Node("large", {"CPU": 16.0, "GPU": 2.0, "fast": 1.0}, "id2", "10.0.0.2")
TWIN = Node("small", {"CPU": 4.0}, "id3", "10.0.0.3")
NODES = [SMALL, LARGE, TWIN]


def command(name: str = "0", node: dict[str, str] | None = None, **amounts: float):
    share = TrialResources(**amounts)
    return WrappedCommand.sharing(share, name=name, command=["true"], node=node)


def test_a_command_that_fits_nowhere_is_refused_with_all_nodes_and_needs():
    by_name = command("b", {"hostname": "smal"})
    with pytest.raises(DoesNotFitError) as refused:
        require_room([command(), command("a", cpu=17), by_name], NODES, at_once=False)
    text = str(refused.value)
    assert "[a], which needs 17 CPU" in text
    assert "[b], which needs 1 CPU, on a node with hostname smal" in text
    assert "[0]" not in text
    assert "large: 16 CPU, 2 GPU" in text


def test_a_command_fits_on_nodes_that_may_come_and_needs_nothing_to_fit():
    coming = Node("gpu", {"CPU": 8.0, "GPU": 8.0}, to_come=2)
    require_room([command(gpu=8), command(cpu=0)], [SMALL, coming], at_once=False)


@pytest.mark.parametrize(
    ("commands", "misfit"),
    [
        ([command(cpu=4), command(cpu=12), command(cpu=4), command(cpu=4)], None),
        ([command(cpu=16), command("a", cpu=3, gpu=1)], "[0]"),
        ([command(str(n), {"ip": "10.0.0.1"}, cpu=3) for n in range(2)], "[1]"),
    ],
)
def test_commands_that_are_to_run_at_once_need_room_beside_each_other(commands, misfit):
    require_room(commands, NODES, at_once=False)
    if misfit is None:
        require_room(commands, NODES, at_once=True)
        return
    with pytest.raises(DoesNotFitError, match="cannot all run at once") as refused:
        require_room(commands, NODES, at_once=True)
    assert f"no room for {misfit}" in str(refused.value)


def test_ray_chooses_a_node_by_its_label_or_by_a_trace_of_its_resource():
    assert ray_options(command(), NODES)["label_selector"] == {}
    named = ray_options(command(node={"hostname": "small"}), NODES)
    assert named["label_selector"] == {"ray.io/node-id": "in(id1,id3)"}
    beside = ray_options(command(node={"resource": "fast"}, memory=5), NODES)
    assert 0 < beside["resources"]["fast"] < 0.01
    assert beside["memory"] == 5
    assert beside["label_selector"] == {}


def test_nodes_with_gpus_are_divided_where_there_are_any():
    assert divided(NODES, 4) == TrialResources(cpu=4, gpu=0.5)
    assert divided([SMALL], 8) == TrialResources(cpu=0.5)


def read(folder: Path, text: str) -> TaskFile:
    path = folder / "tasks.yaml"
    path.write_text(text)
    return read_task_file(path)


def problems(folder: Path, text: str) -> dict[str, str]:
    with pytest.raises(BadConfigError) as refused:
        read(folder, text)
    return {
        item.where.partition(": ")[2]: f"{item.what} {item.hint}" for item in refused.value.problems
    }


def test_a_task_has_all_that_the_file_says(tmp_path):
    found = read(
        tmp_path,
        """
concurrent: true
tasks:
  - name: train
    py_args: "-m my.train --note 'two words'"
    num_cpus: "2*2"
    num_gpus: 0.5
    memory: 10*1024*1024
    resources: {license: 1}
    node: {specific: hostname, hostname: gpu-1}
    env: {SEED: 3}
    cwd: sub
  - command: [echo, a b, 1]
    memory: 4G
    node: {resource: fast}
""",
    )
    train, other = found.tasks
    assert found.concurrent
    assert train.arguments == (sys.executable, "-m", "my.train", "--note", "two words")
    assert str(train) == "python -m my.train --note 'two words'"
    assert train.share == TrialResources(4, 0.5, 10 * 1024**2, {"license": 1})
    assert train.node == {"hostname": "gpu-1"}
    assert (train.env, train.cwd) == ({"SEED": "3"}, "sub")
    assert (other.name, other.arguments) == ("1", ("echo", "a b", "1"))
    assert other.share == TrialResources(memory=4 * 1024**3)
    assert other.node == {"resource": "fast"}


@pytest.mark.parametrize(
    ("key", "text", "amount"),
    [("cpu", ".5", 0.5), ("cpu", "1e-1", 0.1), ("gpu", "2", 2.0), ("memory", "2 * 3", 6)],
)
def test_amounts_are_numbers_or_products(key, text, amount):
    assert amount_of(key)(text) == amount


@pytest.mark.parametrize("text", ["nan", "inf", "-1", "", "2*", "x*2", "1e400"])
@pytest.mark.parametrize("key", ["cpu", "gpu", "memory"])
def test_what_is_no_amount_is_refused(key, text):
    with pytest.raises(ValueError, match=r"number|memory size"):
        amount_of(key)(text)


def test_keys_without_values_are_as_if_they_were_not_there(tmp_path):
    empty = "name:\n    py_args: ''\n    num_gpus:\n    resources:\n    node:\n    env:\n    cwd:"
    (task,) = read(tmp_path, f"pip: []\ntasks:\n  - command: echo\n    {empty}").tasks
    assert task == WrappedCommand(name="0", command=["echo"])


def test_all_mistakes_are_told_at_once_by_their_place(tmp_path):
    found = problems(
        tmp_path,
        """
concurent: true
pip: [numpy]
tasks:
  - {name: a, command: echo, num_gpu: 1}
  - {name: b, command: "echo 'x", num_gpus: -1, memory: lots}
  - {command: echo, node: {specific: hostnam, ip: 1.2.3.4}}
  - {command: echo, node: {specific: ip}, env: {CUDA_VISIBLE_DEVICES: 0, A: [1]}, num_cpus: two}
  - 5
  - {command: echo, node: {resource: GPU}, resources: {CPU: 2}, memory: 0}
  - {command: echo, py_args: a.py}
  - {name: c}
  - {command: [echo, [a]]}
""",
    )
    assert "'concurrent'" in found["concurent"]
    assert "image" in found["pip"]
    assert "'num_gpus'" in found["tasks[0].num_gpu"]
    assert "no closing quotation" in found["tasks[1].command"]
    assert "zero or more" in found["tasks[1].num_gpus"]
    assert "'4G'" in found["tasks[1].memory"]
    assert "either command or py_args" in found["tasks[6]"]
    assert "either command or py_args" in found["tasks[7]"]
    assert "quote it" in found["tasks[8].command[1]"]
    assert "'hostname'" in found["tasks[2].node"]
    assert "has to have ip" in found["tasks[3].node"]
    assert "num_gpus" in found["tasks[3].env.CUDA_VISIBLE_DEVICES"]
    assert "num_gpus" in found["tasks[5].node"]
    assert "num_cpus" in found["tasks[5].resources.CPU"]
    assert "nothing can run" in found["tasks[5].memory"]
    assert {"tasks[3].env.A", "tasks[3].num_cpus", "tasks[4]"} <= set(found)


def test_tasks_that_are_to_run_at_once_need_something_to_reserve(tmp_path):
    idle = "tasks: [{command: echo, num_cpus: 0}]"
    assert not read(tmp_path, idle).concurrent
    assert "num_cpus above 0" in problems(tmp_path, f"concurrent: true\n{idle}")[""]


def test_two_tasks_have_two_names(tmp_path):
    same = "tasks: [{command: echo, name: a}, {command: echo, name: a}]"
    assert "'a' more than once" in problems(tmp_path, same)["tasks"]


@pytest.mark.parametrize("text", ["tasks: []", "{}", "tasks: a"])
def test_a_file_without_tasks_is_refused(tmp_path, text):
    assert "shows a file of tasks" in problems(tmp_path, text)["tasks"]


def test_what_is_not_keys_with_values_is_refused_in_plain_words(tmp_path):
    with pytest.raises(BadConfigError, match="is None; it has to be keys with values"):
        read(tmp_path, "")
    assert "keys with values" in problems(tmp_path, "tasks: [a]")["tasks[0]"]


@pytest.mark.parametrize(
    ("more", "place"),
    [
        ("resources: {licence: true}", "tasks[0].resources.licence"),
        ("resources: {licence: '1'}", "tasks[0].resources.licence"),
        ("node: {any: x}", "tasks[0].node"),
        ("node: {specific: any, hostnam: x}", "tasks[0].node"),
    ],
)
def test_amounts_in_quotes_and_unknown_keys_of_a_node_are_refused(tmp_path, more, place):
    assert place in problems(tmp_path, f"tasks: [{{command: a, {more}}}]")


def test_what_is_no_yaml_or_not_there_is_refused(tmp_path):
    with pytest.raises(BadConfigError, match="cannot be read"):
        read(tmp_path, "tasks: [")
    with pytest.raises(BadConfigError, match="No such file"):
        read_task_file(tmp_path / "none.yaml")
