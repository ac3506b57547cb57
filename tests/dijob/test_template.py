"""Templates: what is read from them, and what is refused."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from ditk_ray.dijob.template import parse_template, read_template
from ditk_ray.errors import BadConfigError

TEMPLATES = Path(__file__).parent / "templates"
Tree = dict[str, Any]


def documents() -> tuple[Tree, Tree]:
    dijob, config_map = yaml.safe_load_all((TEMPLATES / "serial.yaml").read_text())
    return dijob, config_map


def refusal(change: Callable[[Tree, Tree], None]) -> str:
    dijob, config_map = documents()
    change(dijob, config_map)
    with pytest.raises(BadConfigError) as raised:
        parse_template(yaml.safe_dump_all([dijob, config_map]), "job.yaml")
    return str(raised.value)


def task(dijob: Tree) -> Tree:
    return dijob["spec"]["tasks"][0]


def pod(dijob: Tree) -> Tree:
    return task(dijob)["template"]["spec"]


def container(dijob: Tree) -> Tree:
    return pod(dijob)["containers"][0]


def test_a_template_is_read_and_its_project_path_taken_out() -> None:
    template = read_template(TEMPLATES / "serial.yaml")

    assert (template.name, template.namespace, template.script_key) == (
        "cartpole-dqn",
        None,
        "config.py",
    )
    assert template.project_path == "/data/sweeps"
    assert "projectPath" not in template.dijob["spec"]


def test_a_template_needs_no_config_map() -> None:
    template = read_template(TEMPLATES / "distributed.yaml")

    assert (template.config_map, template.project_path) == (None, None)


def test_the_script_goes_where_the_config_map_is_empty() -> None:
    dijob, config_map = documents()
    config_map["data"] = {"notes.txt": "x", "train.py": " \n"}
    container(dijob)["args"] = ["python /etc/config/train.py"]

    template = parse_template(yaml.safe_dump_all([dijob, config_map]), "job.yaml")

    assert template.script_key == "train.py"


def add_task(dijob: Tree, **changes: Any) -> None:
    dijob["spec"]["tasks"].append(copy.deepcopy(task(dijob)) | changes)


def two_learners(dijob: Tree, config_map: Tree) -> None:
    task(dijob).update(type="learner")
    add_task(dijob, type="learner", name="other")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            lambda d, c: d["spec"].update(preemptible=True),
            "job.yaml: spec.preemptible: is true, which crashes DI-orchestrator's operator",
        ),
        (two_learners, "spec.tasks[1]: is a second task of type learner"),
        (lambda d, c: add_task(d), "spec.tasks[1].name: 'serial' is the name of spec.tasks[0] too"),
        (lambda d, c: task(d).pop("name"), "spec.tasks[0].name: is missing"),
        (lambda d, c: task(d).pop("type"), "spec.tasks[0].type: is None"),
        (lambda d, c: task(d).update(type="leaner"), "did you mean 'learner'"),
        (lambda d, c: task(d).update(name="a.b"), "spec.tasks[0].name: is 'a.b'; it may hold"),
        (lambda d, c: task(d).update(replicas=0), "spec.tasks[0].replicas: is 0"),
        (lambda d, c: task(d).update(replica=2), "did you mean 'replicas'"),
        (lambda d, c: task(d).pop("template"), "containers: holds no container"),
        (lambda d, c: pod(d).update(containers=[]), "containers: holds no container"),
        (lambda d, c: d["spec"].update(tasks=[]), "spec.tasks: holds no task"),
        (lambda d, c: d.pop("spec"), "job.yaml: spec: is missing"),
        (lambda d, c: d["spec"].update(cleanPodPolcy="All"), "did you mean 'cleanPodPolicy'"),
        (lambda d, c: d["spec"].update(projectPath="here"), "it has to be an absolute path"),
        (lambda d, c: d["metadata"].pop("name"), "metadata.name: is missing"),
        (lambda d, c: d["metadata"].update(name="Cart.Pole"), "metadata.name: is 'Cart.Pole'"),
        (lambda d, c: pod(d).pop("volumes"), "volumeMounts[0]: mounts 'config-py', and there is"),
        (lambda d, c: container(d).pop("image"), "containers[0].image: is missing"),
        (lambda d, c: c["metadata"].update(name="other"), "nothing in the DIJob refers to 'other'"),
        (lambda d, c: c["data"].update({"config.py": "x", "a": "", "b": ""}), "are empty: a, b"),
        (lambda d, c: d["spec"].update(tasks={}), "spec.tasks: is {}; it has to be a list"),
        (lambda d, c: container(d).update(env=["A=1"]), "env[0]: is 'A=1'; it has to be a mapping"),
        (lambda d, c: d["metadata"].update(labels=["a"]), "labels: is ['a']; it has to be a map"),
        (lambda d, c: c["metadata"].update(labels="a"), "ConfigMap.metadata.labels: is 'a'"),
        (lambda d, c: pod(d)["volumes"][0].update(name=["a"]), "mounts 'config-py', and there is"),
        (lambda d, c: c.update(kind=["ConfigMap"]), "document 2: its kind is ['ConfigMap']"),
        (lambda d, c: c.update(kind="Secret"), "document 2: its kind is 'Secret'"),
        (lambda d, c: c.update(d), "document 2: is a second DIJob"),
        (
            lambda d, c: d.update(apiVersion="diengine.opendilab.org/v1alpha1"),
            "document 1.apiVersion: has to be",
        ),
    ],
)
def test_a_template_is_refused_with_the_place_and_the_reason(change: Any, said: str) -> None:
    assert said in refusal(change)


def test_all_mistakes_are_said_at_once() -> None:
    def change(dijob: Tree, config_map: Tree) -> None:
        dijob["spec"]["preemptible"] = True
        task(dijob).pop("name")
        container(dijob).pop("image")

    message = refusal(change)

    assert all(part in message for part in ("preemptible", "name: is missing", "image: is missing"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "job.yaml: the file: holds no DIJob"),
        ("a: [", "job.yaml: is not YAML"),
        ("- 1", "document 1: its kind is None"),
    ],
)
def test_what_is_no_template_is_refused(text: str, said: str) -> None:
    with pytest.raises(BadConfigError, match=said):
        parse_template(text, "job.yaml")


def test_a_file_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadConfigError, match=r"no\.yaml: cannot be read"):
        read_template(tmp_path / "no.yaml")


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_bytes(b"\xff\xfe\x00")

    with pytest.raises(BadConfigError, match="cannot be read"):
        read_template(tmp_path / "job.yaml")


def test_a_date_that_no_calendar_has_is_not_yaml():
    with pytest.raises(BadConfigError, match="is not YAML: day is out of range"):
        parse_template("built: 2026-02-30\n", "job.yaml")
