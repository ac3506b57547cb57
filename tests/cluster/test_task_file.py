from __future__ import annotations

from pathlib import Path

import pytest

from ditk_ray.cluster.commands.task_file import TaskFile, read_task_file
from ditk_ray.cluster.commands.wrapped_command import PYTHON, NodeChoice
from ditk_ray.config.resources import TrialResources
from ditk_ray.errors import BadConfigError


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
    train, other = found.commands
    assert found.is_concurrent
    assert train.arguments == (PYTHON, "-m", "my.train", "--note", "two words")
    assert str(train) == "python -m my.train --note 'two words'"
    assert train.resources == TrialResources(4, 0.5, 10 * 1024**2, {"license": 1})
    assert train.node == NodeChoice("hostname", "gpu-1")
    assert (dict(train.env), train.folder) == ({"SEED": "3"}, "sub")
    assert (other.name, other.arguments) == ("1", ("echo", "a b", "1"))
    assert other.resources == TrialResources(memory=4 * 1024**3)
    assert other.node == NodeChoice("resource", "fast")


def test_all_mistakes_are_told_at_once_by_their_place(tmp_path):
    found = problems(
        tmp_path,
        """
concurent: true
pip: [numpy]
tasks:
  - {name: a, command: echo, num_gpu: 1}
  - {name: a, command: "echo 'x", num_gpus: -1, memory: lots}
  - {command: echo, py_args: a.py, node: {specific: hostnam, ip: 1.2.3.4}}
  - {command: echo, node: {specific: ip}, env: {CUDA_VISIBLE_DEVICES: 0, A: [1]}, num_cpus: two}
  - 5
  - {command: echo, node: {resource: GPU}, resources: {CPU: 2}, memory: 0}
""",
    )
    assert "'concurrent'" in found["concurent"]
    assert "image" in found["pip"]
    assert "'num_gpus'" in found["tasks[0].num_gpu"]
    assert "no closing quotation" in found["tasks[1].command"]
    assert "tasks[0]" in found["tasks[1].name"]
    assert "zero or more" in found["tasks[1].num_gpus"]
    assert "'4G'" in found["tasks[1].memory"]
    assert "either command or py_args" in found["tasks[2]"]
    assert "'hostname'" in found["tasks[2].node.specific"]
    assert "has to have ip" in found["tasks[3].node"]
    assert "num_gpus" in found["tasks[3].env.CUDA_VISIBLE_DEVICES"]
    assert "num_gpus" in found["tasks[5].node.resource"]
    assert "num_cpus" in found["tasks[5].resources.CPU"]
    assert "nothing can run" in found["tasks[5].memory"]
    assert {"tasks[3].env.A", "tasks[3].num_cpus", "tasks[4]"} <= set(found)


def test_tasks_that_are_to_run_at_once_need_something_to_reserve(tmp_path):
    idle = "tasks: [{command: echo, num_cpus: 0}]"
    assert not read(tmp_path, idle).is_concurrent
    assert "tasks[0].num_cpus" in problems(tmp_path, f"concurrent: true\n{idle}")


@pytest.mark.parametrize("text", ["tasks: []", "{}", "tasks: a"])
def test_a_file_without_tasks_is_refused(tmp_path, text):
    assert "a list of one task or more" in problems(tmp_path, text)["tasks"]


def test_what_is_no_yaml_or_not_there_is_refused(tmp_path):
    with pytest.raises(BadConfigError, match="is no YAML"):
        read(tmp_path, "tasks: [")
    with pytest.raises(BadConfigError, match="No such file"):
        read_task_file(tmp_path / "none.yaml")
