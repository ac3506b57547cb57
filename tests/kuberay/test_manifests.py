"""The YAML of a launch: what is agreed on, and what never may be in it."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from ditk_ray.cli.main import build_parser, main
from ditk_ray.ray_cluster.nodes import worker_groups
from tests.kuberay.launches import COMMON, GOLDEN, LAUNCHES, pods_of, with_flags

ROOT = Path(__file__).resolve().parents[2]
SHIPPED = sorted(
    file
    for file in (ROOT / "cluster_configs/kuberay").glob("*.yaml")
    if file.name != "cluster_rbac.yaml"  # what the user needs, not what a launch makes
)


@pytest.fixture(autouse=True)
def _nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have no cluster at all: what is only printed needs none."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["cluster", *with_flags(list(arguments), "--dry_run")]) == 0
    return capsys.readouterr().out


def golden(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((GOLDEN / f"{name}.yaml").read_text()))


def by_kind(documents: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {document["kind"]: document for document in documents}


def environment(pod: dict[str, Any]) -> dict[str, str]:
    return {each["name"]: each["value"] for each in pod["spec"]["containers"][0]["env"]}


def all_documents() -> list[Any]:
    return list(_documents())


def _documents() -> Iterator[Any]:
    for name in LAUNCHES:
        for number, document in enumerate(golden(name)):
            yield pytest.param(document, id=f"{name}-{number}-{document['kind']}")
    for file in SHIPPED:
        for document in yaml.safe_load_all(file.read_text()):
            yield pytest.param(document, id=f"{file.name}-{document['kind']}")


def inside(value: Any) -> Iterator[tuple[str, Any]]:
    """Return every key with its value, however deep."""
    if isinstance(value, dict):
        yield from value.items()
        for each in value.values():
            yield from inside(each)
    elif isinstance(value, list):
        for each in value:
            yield from inside(each)


@pytest.mark.parametrize("name", LAUNCHES)
def test_a_dry_run_prints_what_was_agreed_on_and_needs_no_cluster(name, capsys):
    assert printed(capsys, *LAUNCHES[name]) == (GOLDEN / f"{name}.yaml").read_text()


@pytest.mark.parametrize("document", all_documents())
def test_nothing_is_reachable_from_outside(document):
    assert document["kind"] not in ("Ingress", "Gateway", "HTTPRoute")
    if document["kind"] == "Service":
        assert document["spec"]["type"] == "ClusterIP"
        assert not {"externalIPs", "loadBalancerIP"} & set(document["spec"])
    for key, value in inside(document):
        assert key not in ("hostPort", "hostNetwork", "hostPID", "hostIPC", "hostPath", "nodePort")
        if key == "serviceType":
            assert value == "ClusterIP"
        if key == "enableIngress":
            assert value is False
        assert value not in ("LoadBalancer", "NodePort")


@pytest.mark.parametrize("document", all_documents())
def test_every_object_and_every_pod_is_known_as_ours(document):
    for about in (document["metadata"], *(pod["metadata"] for pod in pods_of(document))):
        assert about["labels"]["app.kubernetes.io/managed-by"] == "ditk-ray"
        assert document["metadata"]["name"].startswith(about["labels"]["ditk-ray/cluster"])


@pytest.mark.parametrize("document", all_documents())
def test_no_pod_has_more_rights_than_it_needs(document):
    for pod in pods_of(document):
        spec = pod["spec"]
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["runAsUser"] == 1000
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in spec["containers"]:
            assert container["securityContext"]["allowPrivilegeEscalation"] is False
            assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
            assert container["resources"]["limits"]["memory"]
        is_head = spec["containers"][0]["name"] == "ray-head"
        assert is_head == ("serviceAccountName" in spec)
        assert is_head or spec["automountServiceAccountToken"] is False


def test_every_cluster_is_guarded_by_a_token():
    for name in LAUNCHES:
        for document in golden(name):
            spec = document.get("spec", {})
            cluster = spec.get("rayClusterSpec", spec)
            if "headGroupSpec" in cluster:
                assert cluster["authOptions"] == {"mode": "token"}


def test_the_policy_lets_in_the_clusters_own_pods_and_the_operator_alone():
    for name in LAUNCHES:
        for document in golden(name):
            if document["kind"] != "NetworkPolicy":
                continue
            own = {
                "matchLabels": {
                    "ditk-ray/cluster": document["metadata"]["labels"]["ditk-ray/cluster"]
                }
            }
            spec = document["spec"]
            assert spec["podSelector"] == own
            assert spec["policyTypes"] == ["Ingress"]
            (same, operator) = spec["ingress"]
            assert same == {"from": [{"podSelector": own}]}
            assert operator["ports"] == [{"protocol": "TCP", "port": 8265}]
            (who,) = operator["from"]
            assert who["podSelector"]["matchLabels"]


def test_the_shipped_files_are_those_of_the_package():
    assert (ROOT / "cluster_configs/kuberay").samefile(ROOT / "ditk_ray/kuberay/templates")
    assert {file.name for file in SHIPPED} == {
        "access.yaml",
        "mlflow.yaml",
        "network_policy.yaml",
        "ray_cluster.yaml",
        "ray_job.yaml",
        "results_claim.yaml",
    }


def test_the_shipped_files_are_a_launch_with_other_names(capsys):
    """So what a person applies by hand is what the command makes."""
    text = printed(capsys, "launch", "--name", "rl", *COMMON, "--max_workers", "2")
    made = {(each["kind"], each["metadata"]["name"]): each for each in yaml.safe_load_all(text)}
    for file in SHIPPED:
        for document in yaml.safe_load_all(file.read_text().replace("IMAGE", COMMON[1])):
            if document["kind"] == "RayJob":
                continue
            expected = made.pop((document["kind"], document["metadata"]["name"]))
            assert expected["metadata"].pop("namespace") == "default"
            if document["kind"] == "RoleBinding":
                document["subjects"][0]["namespace"] = "default"
            assert document == expected
    assert made == {}


def test_what_sweeps_are_told_of_the_groups_is_what_the_groups_are():
    for name in LAUNCHES:
        for document in golden(name):
            spec = document.get("spec", {})
            cluster = spec.get("rayClusterSpec", spec)
            if "headGroupSpec" not in cluster:
                continue
            head = pods_of(document)[0]
            told = {group.name: group for group in worker_groups(environment(head))}
            assert list(told) == [group["groupName"] for group in cluster["workerGroupSpecs"]]
            for group in cluster["workerGroupSpecs"]:
                limits = group["template"]["spec"]["containers"][0]["resources"]["limits"]
                one = told[group["groupName"]]
                assert (one.min, one.max) == (group["minReplicas"], group["maxReplicas"])
                assert one.cpu == int(limits["cpu"])
                assert one.gpu == int(limits.get("nvidia.com/gpu", 0))
                assert one.memory == int(limits["memory"].removesuffix("Gi")) * 2**30


def test_all_pods_see_the_results_and_record_in_the_same_place():
    for pod in pods_of(by_kind(golden("plain"))["RayCluster"]):
        assert environment(pod)["DITK_RAY_STORAGE"] == "/results"
        assert environment(pod)["MLFLOW_TRACKING_URI"] == "http://rl-mlflow:5000"
        (volume,) = pod["spec"]["volumes"]
        assert volume["persistentVolumeClaim"]["claimName"] == "rl-results"
        (mount,) = pod["spec"]["containers"][0]["volumeMounts"]
        assert (mount["name"], mount["mountPath"]) == (volume["name"], "/results")


def test_an_existing_claim_and_no_mlflow_make_neither():
    kinds = [document["kind"] for document in golden("groups")]
    assert not {"PersistentVolumeClaim", "Service", "Deployment"} & set(kinds)
    for pod in pods_of(golden("groups")[-1]):
        assert "MLFLOW_TRACKING_URI" not in environment(pod)
        assert pod["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"] == "shared"


def test_flags_before_the_first_group_hold_for_all_and_those_after_for_their_own():
    first, second = golden("groups")[-1]["spec"]["workerGroupSpecs"]
    pods = [group["template"]["spec"] for group in (first, second)]
    limits = [pod["containers"][0]["resources"]["limits"] for pod in pods]
    assert limits[0] == {"cpu": "8", "memory": "16Gi"}
    assert limits[1] == {"cpu": "16", "memory": "16Gi", "nvidia.com/gpu": "2"}
    assert "nodeSelector" not in pods[0]
    assert pods[1]["nodeSelector"] == {"nvidia.com/gpu.product": "NVIDIA-L4", "pool": "rl"}
    assert pods[1]["tolerations"][1:] == [
        {"key": "dedicated", "operator": "Equal", "value": "rl", "effect": "NoSchedule"},
        {"key": "scarce", "operator": "Exists"},
    ]


def test_a_parsers_groups_do_not_leak_into_the_next_command():
    parser = build_parser()
    words = ["cluster", "launch", "--name", "rl", "--group", "a"]
    assert parser.parse_args(words).groups == [{}, {"name": "a"}]
    assert parser.parse_args(words).groups == [{}, {"name": "a"}]
    assert not hasattr(parser.parse_args(["cluster", "launch"]), "groups")


def test_with_a_queue_the_size_is_fixed_and_kueue_alone_suspends():
    cluster = by_kind(golden("queued"))["RayCluster"]
    assert cluster["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "team"
    assert cluster["spec"]["enableInTreeAutoscaling"] is False
    assert "autoscalerOptions" not in cluster["spec"]
    assert "suspend" not in cluster["spec"]
    (group,) = cluster["spec"]["workerGroupSpecs"]
    assert [group[key] for key in ("replicas", "minReplicas", "maxReplicas")] == [3, 3, 3]


def test_a_job_runs_a_sweep_that_goes_on_by_itself(capsys):
    job = by_kind(golden("job"))["RayJob"]
    words = shlex.split(job["spec"]["entrypoint"])
    assert words[:2] == ["ditk-ray", "tune"]
    assert words[-5:] == ["--set", "env.note=by night", "--name", "by-night", "--resume_existing"]
    assert job["spec"]["submissionMode"] == "HTTPMode"
    assert job["spec"]["shutdownAfterJobFinishes"] is True
    assert yaml.safe_load(job["spec"]["runtimeEnvYAML"]) == {
        "working_dir": "https://example.com/code.zip"
    }
    unnamed = printed(capsys, "run", "--name", "night", *COMMON, "--", "tune", "--cfg-class=X")
    assert "entrypoint: ditk-ray tune --cfg-class=X --name night --resume_existing" in unnamed


def test_worker_groups_are_plain_json():
    head = pods_of(by_kind(golden("gke"))["RayCluster"])[0]
    assert json.loads(environment(head)["DITK_RAY_WORKER_GROUPS"]) == [
        {"name": "workers", "min": 0, "max": 8, "cpu": 8, "gpu": 1, "memory": 32 * 2**30}
    ]


def test_the_namespace_is_the_one_that_was_named(capsys):
    text = printed(capsys, "launch", "--name", "rl", *COMMON, "--namespace", "mine")
    for document in yaml.safe_load_all(text):
        assert document["metadata"]["namespace"] == "mine"
    assert by_kind(list(yaml.safe_load_all(text)))["RoleBinding"]["subjects"][0] == {
        "kind": "ServiceAccount",
        "name": "rl-ray",
        "namespace": "mine",
    }


def test_the_script_of_the_seeds_name_is_the_command():
    arguments = LAUNCHES["plain"][1:]
    shown = subprocess.run(
        [sys.executable, str(ROOT / "scripts/launch.py"), *arguments, "--dry_run"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert shown.stdout == (GOLDEN / "plain.yaml").read_text()
