"""`ditk-ray cluster list|status|discover|check`, by somebody with the least rights."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from ditk_ray.cli.main import main
from ditk_ray.kuberay.check import needed_rights
from tests.kube.api_server import ApiServer
from tests.kube.kuberay_crds import RAY
from tests.kube.ray_manifests import group, make, make_mlflow, ray_cluster, ray_job
from tests.kube.stand_in.kuberay import StandInKubeRay
from tests.processes import PATIENCE, wait_until

RBAC = Path(__file__).resolve().parents[2] / "cluster_configs" / "cluster_rbac.yaml"
RULES = next(each for each in yaml.safe_load_all(RBAC.read_text()) if each["kind"] == "Role")[
    "rules"
]


@dataclass(frozen=True)
class Said:
    code: int
    out: str
    err: str

    @property
    def rows(self) -> list[list[str]]:
        return [line.split() for line in self.out.splitlines()]


Run = Callable[..., Said]


@pytest.fixture
def run(
    kuberay: ApiServer,
    namespace: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Run:
    """Run a command as somebody who has the rights of cluster_configs/cluster_rbac.yaml."""
    kuberay.grant(namespace, "ranger", RULES)
    monkeypatch.setenv("KUBECONFIG", str(kuberay.kubeconfig("ranger", namespace)))
    monkeypatch.setenv("HOME", str(tmp_path))
    review = {"user": "ranger", "resourceAttributes": {"namespace": namespace, "verb": "delete"}}
    review["resourceAttributes"]["resource"] = "configmaps"
    path = "apis/authorization.k8s.io/v1/subjectaccessreviews"
    wait_until(
        lambda: kuberay.admin.create(path, {"spec": review})["status"]["allowed"], 20, "the rights"
    )

    def call(*arguments: str) -> Said:
        capsys.readouterr()
        code = main(["cluster", *arguments])
        said = capsys.readouterr()
        return Said(code, said.out, said.err)

    return call


def test_the_rights_that_are_checked_are_those_of_the_role() -> None:
    granted = {
        (api, resource, verb)
        for rule in RULES
        for api in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    checked = needed_rights()
    assert {(each.group, each.resource, each.verb) for each in checked} == granted


@pytest.mark.kube
def test_from_the_first_look_to_a_cluster_that_is_written_down(
    run: Run,
    kuberay: ApiServer,
    namespace: str,
    stand_in_kuberay: StandInKubeRay,
    tmp_path: Path,
) -> None:
    assert "no Ray clusters in namespace" in run("list").err

    stand_in_kuberay.never_schedule("rl-workers-*")
    make(kuberay.admin, namespace, ray_cluster("rl", group(replicas=2)))
    make_mlflow(kuberay.admin, namespace)
    wait_until(lambda: "Unschedulable" in run("list").out, 60, "a worker that finds no node")

    waited = run("status", "rl", "--wait", "1s")
    assert waited.code == 1
    assert "rl is starting: pod rl-workers-worker" in waited.err
    assert "0/3 nodes: 3 Insufficient cpu." in waited.out
    assert "no node has room for it" in waited.out
    assert run("discover").code == 1
    assert not (tmp_path / ".cluster_config").exists()

    stand_in_kuberay.behave()
    ready = run("status", "rl", "--wait", f"{60 * PATIENCE:.0f}s")
    assert ready.code == 0, ready.out
    assert f"http://rl-head-svc.{namespace}.svc:8265" in ready.out
    assert ["workers", "2/2", "0", "4"] in ready.rows
    assert "ditk-ray cluster forward rl" in ready.err

    headings, row = run("list").rows
    assert headings == ["NAME", "STATE", "WORKERS", "SIZE", "AGE", "MLFLOW", "WHY"]
    assert row[:5] == ["rl", "Ready", "2/2", "(0-4)", "-"]  # these pods do not say what they need
    listed = json.loads(run("list", "--format", "json").out)
    assert listed["clusters"][0]["mlflow_uri"] == f"http://rl-mlflow.{namespace}.svc:5000"
    assert yaml.safe_load(run("status", "rl", "--format", "yaml").out)["is_ready"] is True

    (tmp_path / ".cluster_config").write_text("# mine\nname: lab address: http://10.0.0.7:8265\n")
    found = run("discover")
    assert found.code == 0, found.err
    assert f"http://rl-mlflow.{namespace}.svc:5000" in found.out
    assert "outside Kubernetes, reach them with `ditk-ray cluster forward NAME`" in found.err
    assert (tmp_path / ".cluster_config").read_text().splitlines() == [
        "# mine",
        "name: lab address: http://10.0.0.7:8265",
        f"name: rl address: http://rl-head-svc.{namespace}.svc:8265",
    ]
    token = tmp_path / ".ray" / "tokens" / "rl"
    assert token.read_text().strip() == stand_in_kuberay.token
    assert token.stat().st_mode & 0o077 == 0

    typo = run("status", "rll")
    assert (typo.code, typo.out) == (2, "")
    assert "is called 'rll'" in typo.err
    assert "did you mean 'rl'?" in typo.err


@pytest.mark.kube
def test_many_clusters_cost_no_more_requests_than_one(
    run: Run, kuberay: ApiServer, namespace: str, stand_in_kuberay: StandInKubeRay
) -> None:
    names = [f"rl-{number}" for number in range(6)]
    make(kuberay.admin, namespace, *map(ray_cluster, names))

    def are_ready() -> bool:
        rows = run("list").rows[1:]
        return len(rows) == len(names) and all(row[1] == "Ready" for row in rows)

    wait_until(are_ready, 60, "all clusters")
    before = kuberay.request_counts("ranger")
    run("list")

    def asked() -> dict[tuple[str, str], int]:
        # Reviews of rights and the waiting are over: what is counted now is the one command.
        return dict(kuberay.request_counts("ranger") - before)

    kinds = ("rayclusters", "rayjobs", "pods", "services", "endpoints", "persistentvolumeclaims")
    expected = {("list", kind): 1 for kind in (*kinds, "events")} | {("list", "pods"): 2}
    wait_until(lambda: asked() == expected, 10, f"eight requests, not {asked()}")


@pytest.mark.kube
def test_a_ray_job_is_shown_with_its_cluster_and_by_its_own_name_until_its_end(
    run: Run, kuberay: ApiServer, namespace: str, stand_in_kuberay: StandInKubeRay
) -> None:
    make(kuberay.admin, namespace, ray_job("night"))
    wait_until(lambda: "RUNNING" in run("list").out, 60, "the job to run")
    rows = run("list").rows
    cluster = rows[1][0]
    assert cluster.startswith("night-")
    assert ["night", "Running", "RUNNING", cluster] in [row[:4] for row in rows]
    status = run("status", "night")
    assert status.code == 0
    assert f"http://{cluster}-head-svc.{namespace}.svc:8265" in status.out

    stand_in_kuberay.end_job("night", "FAILED", "Failed", "exit code 3")
    ended = run("status", "night")
    assert ended.code == 1
    assert "exit code 3" in ended.out
    assert json.loads(run("status", "night", "--format", "json").out)["job"]["is_over"]


@pytest.mark.kube
def test_quotas_crashes_and_images_are_told_apart(
    run: Run, kuberay: ApiServer, namespace: str, stand_in_kuberay: StandInKubeRay
) -> None:
    stand_in_kuberay.crash("crashing-head-*")
    stand_in_kuberay.fail_to_pull("pulling-head-*")
    clusters = [ray_cluster("crashing"), ray_cluster("pulling"), ray_cluster("held", suspend=True)]
    make(kuberay.admin, namespace, *clusters)
    expected = {
        "crashing": "with exit code 1",
        "pulling": "ImagePullBackOff: manifest unknown",
        "held": "it is suspended",
    }

    def told(expected: dict[str, str]) -> bool:
        found = json.loads(run("list", "--format", "json").out)["clusters"]
        why = {each["name"]: each["why"] for each in found}
        return all(text in why.get(name, "") for name, text in expected.items())

    wait_until(lambda: told(expected), 60, f"{expected}")
    stand_in_kuberay.quota(len(stand_in_kuberay.pods("crashing", "worker")) + 3)
    make(kuberay.admin, namespace, ray_cluster("greedy"))
    wait_until(lambda: told({"greedy": "exceeded quota"}), 60, "the quota")


@pytest.mark.kube
def test_check_lists_what_is_there_what_is_missing_and_what_to_do(
    run: Run, kuberay: ApiServer, namespace: str, stand_in_kuberay: StandInKubeRay
) -> None:
    checked = run("check", "--format", "json")
    found = {each["about"]: each for each in json.loads(checked.out)}
    assert checked.code == 0
    verdicts = {about: each["verdict"] for about, each in found.items()}
    assert verdicts == {
        "API server": "ok",
        "KubeRay": "ok",
        "KubeRay's operator": "unknown",
        "rights": "ok",
        "storage": "unknown",
    }
    make(kuberay.admin, namespace, ray_cluster("rl"))
    wait_until(lambda: "Ready" in run("list").out, 60, "the cluster")
    plain = run("check")
    assert plain.code == 0, plain.out
    assert "it has processed RayClusters of this namespace" in plain.out


@pytest.mark.kube
def test_check_names_each_right_that_is_missing(
    run: Run, kuberay: ApiServer, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(kuberay.kubeconfig("stranger", namespace)))
    checked = run("check")
    assert checked.code == 1
    assert "get, create pods/portforward" in checked.out
    assert "cluster_configs/cluster_rbac.yaml" in checked.out
    refused = run("list")
    assert refused.code == 2
    assert "stranger may not list rayclusters" in refused.err
    assert "see cluster_configs/cluster_rbac.yaml" in refused.err


@pytest.mark.kube
def test_check_of_an_admin_sees_operator_and_storage(
    run: Run, kuberay: ApiServer, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(kuberay.kubeconfig(namespace=namespace)))
    admin = kuberay.admin
    assert "none of its pods is running" in run("check").out
    storage = {"metadata": {"name": namespace}, "provisioner": "filestore.csi.storage.gke.io"}
    labels = {"app.kubernetes.io/component": "kuberay-operator"}
    container = {"name": "operator", "image": "none"}
    pods = f"api/v1/namespaces/{namespace}/pods"
    try:
        admin.create("apis/storage.k8s.io/v1/storageclasses", storage)
        operator = {"metadata": {"name": "operator", "labels": labels}}
        admin.create(pods, {**operator, "spec": {"containers": [container]}})
        admin.patch(f"{pods}/operator/status", {"status": {"phase": "Running"}})
        seen = run("check")
        assert seen.code == 0, seen.out
        assert "pod operator" in seen.out
        assert re.search(f"ReadWriteMany by .*{namespace}", seen.out)  # others may have left one
    finally:
        admin.delete(f"apis/storage.k8s.io/v1/storageclasses/{namespace}")


@pytest.mark.kube
def test_without_kuberay_the_answer_says_what_to_install(
    run: Run, kuberay: ApiServer, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The definitions are there for all tests, so an API version is asked for that nobody has."""
    from ditk_ray.kube.objects import Resource

    missing = Resource("rayclusters", "RayCluster", "ray.io/v9")
    monkeypatch.setattr("ditk_ray.kuberay.lookup.RAY_CLUSTERS", missing)
    said = run("list")
    assert said.code == 1
    assert "is KubeRay installed?" in said.err
    monkeypatch.setattr("ditk_ray.kuberay.check.RAY_API", "ray.io/v9")
    assert "helm install kuberay-operator" in run("check").out
    assert kuberay.admin.get(f"{RAY}/namespaces/{namespace}/rayclusters")["items"] == []
