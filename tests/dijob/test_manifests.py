"""The manifests of an attempt."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from ditk_ray.config.resources import TrialResources
from ditk_ray.dijob.jobs import JobIdentity
from ditk_ray.dijob.manifests import JobManifests, render_job
from ditk_ray.dijob.template import DijobTemplate, parse_template, read_template
from ditk_ray.errors import BadConfigError
from ditk_ray.kube.yaml_text import yaml_documents

TEMPLATES = Path(__file__).parent / "templates"
IDENTITY = JobIdentity("dqn-0a1b2c", "trial_00003")
SCRIPT = 'print("hello")\n\nprint("world")\n'
SERIAL = read_template(TEMPLATES / "serial.yaml")
DISTRIBUTED = read_template(TEMPLATES / "distributed.yaml")


def render(
    template: DijobTemplate,
    resources: dict[str, TrialResources] | None = None,
    identity: JobIdentity = IDENTITY,
    script: str = SCRIPT,
) -> JobManifests:
    return render_job(template, identity, script, resources or {}, "rl")


def main_of(manifests: JobManifests, task: int = 0) -> dict[str, Any]:
    containers = manifests.dijob["spec"]["tasks"][task]["template"]["spec"]["containers"]
    return next(item for item in containers if item["name"] == "di-container")


def environment_of(container: dict[str, Any]) -> dict[str, str]:
    names = [item["name"] for item in container["env"]]
    assert len(set(names)) == len(names)
    return {item["name"]: item["value"] for item in container["env"]}


@pytest.mark.parametrize(
    ("name", "resources"),
    [
        ("serial", {"*": TrialResources(cpu=4, gpu=1, memory=2**34)}),
        ("distributed", {"learner": TrialResources(cpu=6, gpu=2), "*": TrialResources(cpu=0.5)}),
    ],
)
def test_the_manifests_are_those_that_were_agreed_on(
    name: str, resources: dict[str, TrialResources]
) -> None:
    manifests = render(read_template(TEMPLATES / f"{name}.yaml"), resources)

    text = yaml_documents([manifests.dijob, manifests.config_map])
    assert text == (TEMPLATES / f"{name}.rendered.yaml").read_text()


def test_the_template_stays_as_it_is() -> None:
    before = copy.deepcopy((SERIAL, DISTRIBUTED))

    render(SERIAL, {"*": TrialResources(cpu=3)})
    render(DISTRIBUTED, {"*": TrialResources(cpu=3)})

    assert before == (SERIAL, DISTRIBUTED)


def test_job_and_config_map_carry_the_name_and_the_labels_and_those_of_the_template() -> None:
    manifests = render(SERIAL)

    assert manifests.name == "cartpole-dqn-0a1b2c-00003-0"
    for document in (manifests.dijob, manifests.config_map):
        assert document["metadata"]["name"] == manifests.name
        assert document["metadata"]["namespace"] == "rl"
        assert document["metadata"]["labels"].items() >= IDENTITY.labels.items()
    assert manifests.dijob["metadata"]["labels"]["team"] == "rl"
    assert manifests.dijob["spec"]["backoffLimit"] == 0


def test_every_reference_to_the_config_map_is_renamed() -> None:
    dijob, config_map = yaml.safe_load_all((TEMPLATES / "serial.yaml").read_text())
    old = config_map["metadata"]["name"]
    pod = dijob["spec"]["tasks"][0]["template"]["spec"]
    pod["initContainers"] = [
        {"name": "first", "image": "x", "envFrom": [{"configMapRef": {"name": old}}]}
    ]
    pod["containers"][0]["env"].append(
        {"name": "A", "valueFrom": {"configMapKeyRef": {"name": old, "key": "a"}}}
    )
    projected = {"name": "p", "projected": {"sources": [{"configMap": {"name": old}}]}}
    others = {"name": "o", "configMap": {"name": "others"}}
    dijob["spec"]["volumes"] += [projected, others]
    template = parse_template(yaml.safe_dump_all([dijob, config_map]), "job.yaml")

    manifests = render(template)

    text = str(manifests.dijob)
    assert f"'{old}'" not in text
    assert text.count(f"'name': '{manifests.name}'") == 5  # and its own
    assert "'others'" in text


def test_the_script_is_in_the_config_map() -> None:
    assert render(SERIAL).config_map["data"] == {"config.py": SCRIPT}
    assert render(DISTRIBUTED).config_map["data"] == {"config.py": SCRIPT}


def test_without_a_config_map_one_is_mounted_in_every_container() -> None:
    manifests = render(DISTRIBUTED)

    for task in manifests.dijob["spec"]["tasks"]:
        pod = task["template"]["spec"]
        assert pod["volumes"] == [
            {"name": "ditk-ray-config", "configMap": {"name": manifests.name}}
        ]
        for container in pod["containers"]:
            assert container["volumeMounts"] == [
                {"name": "ditk-ray-config", "mountPath": "/etc/ditk-ray"}
            ]


def test_a_main_container_without_a_command_runs_the_script() -> None:
    manifests = render(DISTRIBUTED)

    assert main_of(manifests, 0)["command"][0] == "ding"
    assert main_of(manifests, 3)["command"] == ["python", "-u", "/etc/ditk-ray/config.py"]
    assert "command" not in manifests.dijob["spec"]["tasks"][3]["template"]["spec"]["containers"][0]


def test_the_templates_environment_wins_except_over_what_says_which_trial_it_is() -> None:
    manifests = render(SERIAL)

    environment = environment_of(main_of(manifests))

    assert environment == {
        "PYTHONUNBUFFERED": "0",
        "DITK_RAY_SWEEP": "dqn-0a1b2c",
        "DITK_RAY_TRIAL": "trial_00003",
        "DITK_RAY_ATTEMPT": "0",
        "DITK_RAY_SEED": "0",
        "DITK_RAY_JOB": manifests.name,
        "DITK_RAY_PROJECT": "/data/sweeps",
        "OMP_NUM_THREADS": "2",
        "MKL_NUM_THREADS": "2",
        "OPENBLAS_NUM_THREADS": "2",
        "NUMEXPR_NUM_THREADS": "2",
    }


def test_only_the_resources_that_are_given_replace_the_templates() -> None:
    manifests = render(SERIAL, {"*": TrialResources(cpu=1.5, custom={"example.com/fpga": 2})})

    resources = main_of(manifests)["resources"]

    assert resources["requests"] == resources["limits"]
    assert resources["limits"] == {
        "example.com/gpu-a100": 1,
        "cpu": "1500m",
        "memory": "8Gi",
        "example.com/fpga": "2",
    }
    assert environment_of(main_of(manifests))["OMP_NUM_THREADS"] == "1"


def test_a_gpu_is_asked_for_by_the_templates_name_or_the_usual_one() -> None:
    given = {"*": TrialResources(gpu=2)}

    assert main_of(render(SERIAL, given))["resources"]["limits"]["example.com/gpu-a100"] == "2"
    assert main_of(render(DISTRIBUTED, given))["resources"]["limits"]["nvidia.com/gpu"] == "2"


def test_a_tasks_own_resources_come_before_those_for_all() -> None:
    manifests = render(
        DISTRIBUTED, {"*": TrialResources(cpu=1), "learner": TrialResources(cpu=8, memory=1000)}
    )

    assert main_of(manifests, 0)["resources"]["limits"] == {"cpu": "1"}
    assert main_of(manifests, 1)["resources"]["limits"] == {"cpu": "8", "memory": "1000"}


def test_a_task_for_which_nothing_is_given_keeps_the_templates() -> None:
    manifests = render(DISTRIBUTED, {"learner": TrialResources(cpu=8)})

    assert main_of(manifests, 3)["resources"] == {"limits": {"cpu": "500m"}}
    assert "OMP_NUM_THREADS" not in environment_of(main_of(manifests, 0))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"resources": {"*": TrialResources(gpu=0.5)}}, "asks for 0.5 of example.com/gpu-a100"),
        ({"resources": {"*": TrialResources(custom={"a/b": 1.5})}}, "asks for 1.5 of a/b"),
        ({"resources": {"leaner": TrialResources()}}, "a task 'leaner', but the tasks are serial"),
        ({"script": "#" * 2**20 + "\n"}, "ConfigMap: would hold 1 MiB"),
        (
            {"identity": JobIdentity(f"a-{'0' * 35}", "trial_00003")},
            "metadata.name, spec.tasks[0]: a pod would be called cartpole-dqn-",
        ),
    ],
)
def test_what_kubernetes_would_not_take_is_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(BadConfigError) as raised:
        render(SERIAL, **changes)

    assert said in str(raised.value)
    assert str(raised.value).startswith(str(TEMPLATES / "serial.yaml"))


def test_the_name_of_the_last_pod_counts() -> None:
    dijob, config_map = yaml.safe_load_all((TEMPLATES / "serial.yaml").read_text())
    dijob["metadata"]["name"] = "n" * 37
    task = dijob["spec"]["tasks"][0]
    template = parse_template(yaml.safe_dump_all([dijob, config_map]), "job.yaml")
    assert len(f"{render(template).name}-serial-0") == 61  # and 62 from the tenth attempt on

    task["replicas"] = 101
    template = parse_template(yaml.safe_dump_all([dijob, config_map]), "job.yaml")
    with pytest.raises(BadConfigError, match="64 characters of 63"):
        render(template)
