"""Launching and deleting Ray clusters, on a real API server with KubeRay's own resources."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from ditk_ray.cli.main import main
from ditk_ray.kube.objects import Objects
from ditk_ray.kuberay import apply
from tests.kube.api_server import ApiServer
from tests.kube.kuberay_crds import without_kuberay
from tests.kuberay.cluster_objects import PLACES, objects_in, put, versions_in
from tests.kuberay.launches import COMMON, GOLDEN, LAUNCHES
from tests.processes import PATIENCE, wait_until

pytestmark = pytest.mark.kube

WAIT = f"{120 * PATIENCE:.0f}s"
RL = ["launch", "--name", "rl", *COMMON]
NIGHT = ["run", "--name", "night", *COMMON, "--", "tune", "--cfg_class", "CartpoleDQNJobCfg"]
PIECES = {
    "NetworkPolicy/rl-ray",
    "ServiceAccount/rl-ray",
    "Role/rl-ray",
    "RoleBinding/rl-ray",
    "PersistentVolumeClaim/rl-results",
    "PersistentVolumeClaim/rl-mlflow",
    "Service/rl-mlflow",
    "Deployment/rl-mlflow",
    "RayCluster/rl",
}
DATA = {"PersistentVolumeClaim/rl-results", "PersistentVolumeClaim/rl-mlflow"}


@dataclass(frozen=True)
class Said:
    code: int
    out: str
    err: str


@pytest.fixture
def run(
    kuberay: ApiServer,
    namespace: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[..., Said]:
    """Run `ditk-ray` as somebody whose kubeconfig names the cluster and the namespace."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("KUBECONFIG", str(kuberay.kubeconfig(namespace=namespace)))

    def call(*arguments: str) -> Said:
        capsys.readouterr()
        code = main(list(arguments))
        said = capsys.readouterr()
        return Said(code, said.out, said.err)

    return call


def holds(stored: Any, sent: Any, path: str = "") -> None:
    """Fail if something that was sent is not stored, or otherwise than it was sent."""
    if isinstance(sent, dict):
        for key, value in sent.items():
            assert key in stored, f"{path}.{key} was dropped"
            holds(stored[key], value, f"{path}.{key}")
    elif isinstance(sent, list):
        assert len(stored) == len(sent), path
        for number, value in enumerate(sent):
            holds(stored[number], value, f"{path}[{number}]")
    else:
        assert stored == sent, path


@pytest.mark.parametrize("name", LAUNCHES)
def test_all_that_is_printed_is_taken_and_kept_whole_and_a_second_time_nothing_changes(
    name, run, kuberay, namespace
):
    first = run("cluster", *LAUNCHES[name])
    assert first.code == 0, first.err

    stored = objects_in(kuberay, namespace)
    text = (GOLDEN / f"{name}.yaml").read_text()
    sent = list(yaml.safe_load_all(text.replace("-mlflow.default", f"-mlflow.{namespace}")))
    assert len(stored) == len(sent)
    for document in sent:
        about = document["metadata"]
        about["namespace"] = namespace
        for subject in document.get("subjects", ()):
            subject["namespace"] = namespace
        holds(stored[f"{document['kind']}/{about['name']}"], document)
    assert first.out.count(" created\n") == len(sent)

    before = versions_in(kuberay, namespace)
    again = run("cluster", *LAUNCHES[name])
    assert (again.code, again.out.count(" unchanged\n")) == (0, len(sent))
    assert versions_in(kuberay, namespace) == before


def test_a_launch_says_what_it_made_what_that_costs_and_how_to_go_on(run):
    said = run("cluster", *RL, "--gpu", "1", "--max_workers", "3")
    assert said.out.splitlines()[0] == "networkpolicy/rl-ray created"
    assert said.out.splitlines()[-1] == "raycluster/rl created"
    for part in (
        "billable while 'rl' exists: 6 CPU, 1 GPU (head, 1 of at most 3 workers), an MLflow server",
        "rl-mlflow (20Gi), rl-results (100Gi)",
        "ditk-ray cluster forward rl",
        "ditk-ray submit --cluster rl -- tune",
        "ditk-ray cluster delete rl",
    ):
        assert part in said.err


def test_what_stands_is_told_with_what_it_costs_also_when_its_cluster_is_gone(run):
    assert run("cluster", *RL, "--gpu", "1", "--workers", "2", "--max_workers", "3").code == 0
    listed = run("cluster", "list")
    assert "10 CPU, 2 GPU" in listed.out
    assert "with or without a cluster: rl-mlflow (20Gi), rl-results (100Gi)" in listed.err
    status = run("cluster", "status", "rl").out.partition("Billable while it exists: ")[2]
    assert status == (
        "10 CPU, 2 GPU (head, 2 of at most 3 workers), an MLflow server, storage, which stays when "
        "it is deleted: rl-mlflow (20Gi), rl-results (100Gi)\n"
    )

    assert run("cluster", "delete", "rl", "--yes", "--wait", WAIT).code == 0

    left = json.loads(run("cluster", "list", "--format", "json").out)
    assert left == {
        "clusters": [],
        "jobs": [],
        "claims": ["rl-mlflow (20Gi)", "rl-results (100Gi)"],
    }


def test_a_job_that_is_over_is_told_with_what_it_left_standing(run, kuberay, namespace):
    assert run("cluster", *NIGHT).code == 0
    over = {"status": {"jobDeploymentStatus": "Complete", "jobStatus": "SUCCEEDED"}}
    kuberay.admin.patch(f"{PLACES['RayJob'].format(namespace)}/night/status", over)
    status = run("cluster", "status", "night", "--format", "json")
    assert json.loads(status.out)["costs"] == (
        "an MLflow server, storage, which stays when it is deleted: "
        "night-mlflow (20Gi), night-results (100Gi)"
    )


def test_other_options_change_the_cluster_and_leave_what_its_autoscaler_chose(
    run, kuberay, namespace
):
    assert run("cluster", *RL, "--max_workers", "8").code == 0
    path = f"{PLACES['RayCluster'].format(namespace)}/rl"
    cluster = kuberay.admin.get(path)
    going = {"workersToDelete": ["rl-workers-worker-x"]}
    cluster["spec"]["workerGroupSpecs"][0] |= {"replicas": 6, "scaleStrategy": going}
    kuberay.admin.replace(path, cluster)

    same = run("cluster", *RL, "--max_workers", "8")
    assert "raycluster/rl unchanged" in same.out
    changed = run("cluster", *RL, "--max_workers", "5", "--cpu", "9", "--no_mlflow")

    assert changed.out.splitlines()[-1] == "raycluster/rl changed"
    assert "no longer part of it, but still there: deployment/rl-mlflow" in changed.err
    (group,) = kuberay.admin.get(path)["spec"]["workerGroupSpecs"]
    assert (group["replicas"], group["maxReplicas"]) == (5, 5)
    limits = group["template"]["spec"]["containers"][0]["resources"]["limits"]
    assert limits == {"cpu": "9", "memory": "16Gi"}


def test_what_somebody_else_made_is_not_taken_over(run, kuberay, namespace):
    theirs = {"metadata": {"name": "rl-mlflow"}, "spec": {"ports": [{"port": 5000}]}}
    put(kuberay, namespace, "Service", theirs)
    labels = {"app.kubernetes.io/managed-by": "ditk-ray", "ditk-ray/cluster": "other"}
    put(kuberay, namespace, "ServiceAccount", {"metadata": {"name": "rl-ray", "labels": labels}})
    before = versions_in(kuberay, namespace)

    refused = run("cluster", *RL)

    assert refused.code == 2
    assert "service/rl-mlflow: is in namespace" in refused.err
    assert "serviceaccount/rl-ray: is in namespace" in refused.err
    assert versions_in(kuberay, namespace) == before


def test_a_job_and_a_cluster_of_one_name_are_refused_and_a_job_does_not_change(
    run, kuberay, namespace
):
    assert run("cluster", *NIGHT).code == 0
    before = versions_in(kuberay, namespace)

    twin = run("cluster", "launch", "--name", "night", *COMMON)
    other = run("cluster", *NIGHT, "--num_samples", "5")

    assert twin.code == 2 and "rayjob/night: exists; a RayCluster cannot" in twin.err
    assert other.code == 2 and "rayjob/night: exists with different settings" in other.err
    assert versions_in(kuberay, namespace) == before


def test_what_the_server_would_refuse_is_told_before_anything_is_made(run, kuberay, namespace):
    # A claim of that name is there, and claims never change their class.
    labels = {"app.kubernetes.io/managed-by": "ditk-ray", "ditk-ray/cluster": "rl"}
    claim = {
        "metadata": {"name": "rl-results", "labels": labels},
        "spec": {
            "accessModes": ["ReadWriteMany"],
            "storageClassName": "nfs",
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }
    put(kuberay, namespace, "PersistentVolumeClaim", claim)
    refused = run("cluster", *RL, "--storage_class", "other")
    assert refused.code == 2 and "rl-results" in refused.err
    nowhere = run("cluster", *RL, "--namespace", "nowhere")
    assert nowhere.code != 0 and "the namespace does not exist" in nowhere.err
    assert set(objects_in(kuberay, namespace)) == {"PersistentVolumeClaim/rl-results"}


def test_a_launch_that_breaks_off_says_what_it_made_and_can_be_taken_back_or_gone_on_with(
    run, kuberay, namespace, monkeypatch
):
    from ditk_ray.errors import KubeUnreachableError

    apply = Objects.apply

    def break_off(self: Objects, manifest: Any, *, is_check: bool = False) -> Any:
        if manifest["kind"] == "Deployment" and not is_check:
            raise KubeUnreachableError("the connection broke")
        return apply(self, manifest, is_check=is_check)

    with monkeypatch.context() as patched:
        patched.setattr(Objects, "apply", break_off)
        broken = run("cluster", *RL)

    assert broken.code == 1
    assert "the connection broke" in broken.err
    assert "networkpolicy/rl-ray created" in broken.out
    assert "ditk-ray cluster delete rl --results" in broken.err
    assert set(objects_in(kuberay, namespace)) == PIECES - {"Deployment/rl-mlflow", "RayCluster/rl"}
    assert run("cluster", *RL).code == 0
    assert set(objects_in(kuberay, namespace)) == PIECES


# delete


def foreign_pieces(kube: ApiServer, namespace: str) -> set[str]:
    """Make what looks like ours and is not."""
    others = {"app.kubernetes.io/managed-by": "somebody", "ditk-ray/cluster": "rl"}
    put(kube, namespace, "ServiceAccount", {"metadata": {"name": "theirs", "labels": others}})
    put(kube, namespace, "ServiceAccount", {"metadata": {"name": "rl-own"}})
    return {"ServiceAccount/theirs", "ServiceAccount/rl-own"}


def test_deleting_removes_all_that_was_made_and_nothing_else_and_keeps_the_data(
    run, kuberay, namespace
):
    foreign = foreign_pieces(kuberay, namespace)
    assert run("cluster", *RL).code == 0
    assert run("cluster", "launch", "--name", "rl2", *COMMON, "--no_mlflow").code == 0
    second = {name for name in objects_in(kuberay, namespace) if "/rl2" in name}

    asked = run("cluster", "delete", "rl")
    assert asked.code == 2 and "--yes" in asked.err
    assert set(objects_in(kuberay, namespace)) == foreign | PIECES | second
    first = run("cluster", "delete", "rl", "--yes", "--wait", WAIT)

    assert first.code == 0, first.err
    assert first.out.splitlines()[0] == "raycluster/rl deleted"
    assert "rl-mlflow (20Gi)" in first.err and "this storage is billable" in first.err
    assert set(objects_in(kuberay, namespace)) == foreign | DATA | second
    kept = run("cluster", "delete", "rl", "--yes")
    assert kept.code == 0 and "rl-results (100Gi)" in kept.err
    assert run("cluster", "delete", "rl", "rl2", "--results", "--yes", "--wait", WAIT).code == 0
    assert set(objects_in(kuberay, namespace)) == foreign


def test_what_is_deleted_is_forgotten_where_submit_looks(run, namespace, tmp_path):
    known, token = tmp_path / ".cluster_config", tmp_path / ".ray/tokens/rl"
    token.parent.mkdir(parents=True)
    token.write_text("secret")
    lab = "name: lab address: http://10.0.0.7:8265\n"
    known.write_text(f"{lab}name: rl address: http://rl-head-svc.{namespace}.svc:8265\n")
    assert run("cluster", *RL).code == 0

    assert run("cluster", "delete", "rl").code == 2
    assert token.exists()
    assert run("cluster", "delete", "rl", "--yes").code == 0

    assert known.read_text() == lab
    assert not token.exists()
    assert run("cluster", *RL).code == 0
    known.write_text("nonsense\n")
    deleted = run("cluster", "delete", "rl", "--yes")
    assert deleted.code == 0
    assert "still known to `ditk-ray submit`" in deleted.err


def test_deleting_all_takes_jobs_and_clusters_and_a_typo_is_helped_with(run, kuberay, namespace):
    assert run("cluster", *RL).code == 0
    assert run("cluster", *NIGHT).code == 0
    wrong = run("cluster", "delete", "nihgt", "--yes")
    assert wrong.code == 2 and "did you mean 'night'" in wrong.err
    assert run("cluster", "delete", "--yes").code == 2
    assert run("cluster", "delete", "rl", "--all", "--yes").code == 2
    gone = run("cluster", "delete", "--all", "--results", "--yes", "--wait", WAIT)
    assert gone.code == 0 and "rayjob/night deleted" in gone.out
    assert objects_in(kuberay, namespace) == {}


def test_an_object_that_took_the_name_of_another_is_not_deleted(run, kuberay, namespace):
    from ditk_ray.config.options import KubeSettings
    from ditk_ray.kube.connection import connect

    assert run("cluster", *RL).code == 0
    kube = connect(KubeSettings())
    found = apply.find_pieces(kube, "rl")
    (cluster,) = [piece for piece in found if piece.resource.kind == "RayCluster"]
    kuberay.admin.delete(f"{PLACES['RayCluster'].format(namespace)}/rl")
    assert run("cluster", *RL).code == 0
    assert not kube.delete(cluster)
    assert "RayCluster/rl" in objects_in(kuberay, namespace)


# with the stand-in for KubeRay's operator


def test_a_launch_waits_for_the_cluster_and_its_end(run, stand_in_kuberay, kuberay, namespace):
    ready = run("cluster", *RL, "--no_mlflow", "--wait", WAIT)
    assert (ready.code, ready.out.splitlines()[-1]) == (0, "raycluster/rl ready"), ready.err
    assert run("cluster", "delete", "rl", "--yes", "--wait", WAIT).code == 0
    # The Service of the head is KubeRay's, and goes with its owner.
    left = set(objects_in(kuberay, namespace)) - {"Service/rl-head-svc"}
    assert left == {"PersistentVolumeClaim/rl-results"}


# gc --clusters


def test_gc_finds_what_is_left_of_clusters_and_jobs_that_are_over(
    run, kuberay, namespace, monkeypatch
):
    foreign = foreign_pieces(kuberay, namespace)
    assert run("cluster", *RL).code == 0
    assert run("cluster", "launch", "--name", "living", *COMMON, "--no_mlflow").code == 0
    assert run("cluster", *NIGHT).code == 0
    living = {name for name in objects_in(kuberay, namespace) if "/living" in name}
    night = {name for name in objects_in(kuberay, namespace) if "/night" in name}
    kuberay.admin.delete(f"{PLACES['RayCluster'].format(namespace)}/rl")

    young = run("gc", "--clusters", "--yes")
    assert young.code == 0 and "nothing is left over of Ray clusters" in young.err
    monkeypatch.setattr(apply, "LAUNCH_SECONDS", 0.0)
    status = {"status": {"jobDeploymentStatus": "Complete", "jobStatus": "SUCCEEDED"}}
    job = f"{PLACES['RayJob'].format(namespace)}/night"
    shown = json.loads(run("gc", "--clusters", "--format", "json").out)
    assert {item["cluster"] for item in shown} == {"rl"}
    kuberay.admin.patch(f"{job}/status", status)
    assert run("gc", "--clusters").code == 2
    cleaned = run("gc", "--clusters", "--yes")

    assert cleaned.code == 0, cleaned.err
    rows = [line.split() for line in cleaned.out.splitlines()]
    assert rows[0] == ["KIND", "NAME", "CLUSTER", "AGE", "WHY"]
    assert ["RayJob", "night", "night"] in [row[:3] for row in rows]
    assert "its RayJob is over: Complete" in cleaned.out
    assert "its RayCluster is gone" in cleaned.out
    claims = DATA | {name for name in night if name.startswith("PersistentVolumeClaim/")}
    assert set(objects_in(kuberay, namespace)) == foreign | living | claims
    assert "night-results (100Gi)" in cleaned.err
    assert run("gc", "--clusters", "--results", "--yes").code == 0
    wait_until(
        lambda: set(objects_in(kuberay, namespace)) == foreign | living, 60, "the claims to be gone"
    )


def test_nothing_is_deleted_while_the_server_does_not_know_the_kinds_of_kuberay(
    run, kuberay, namespace, monkeypatch
):
    monkeypatch.setattr(apply, "LAUNCH_SECONDS", 0.0)
    assert run("cluster", *RL).code == 0
    before = versions_in(kuberay, namespace)

    with without_kuberay(kuberay.admin):
        for words in (["cluster", "delete", "rl"], ["cluster", "delete", "--all"]):
            refused = run(*words, "--results", "--yes")
            assert (refused.code, refused.out) == (1, "")
            assert "--without_kuberay" in refused.err
        spared = run("gc", "--clusters", "--results", "--yes")

    assert (spared.code, spared.out) == (1, "")
    assert "--without_kuberay" in spared.err
    assert versions_in(kuberay, namespace) == before


def test_what_an_uninstalled_kuberay_left_behind_is_deleted_on_demand(
    run, kuberay, namespace, monkeypatch
):
    monkeypatch.setattr(apply, "LAUNCH_SECONDS", 0.0)
    for name in ("rl", "rl2"):
        assert run("cluster", "launch", "--name", name, *COMMON, "--no_mlflow").code == 0

    with without_kuberay(kuberay.admin):
        sure = ("--without_kuberay", "--results", "--yes")
        deleted = run("cluster", "delete", "rl", *sure, "--wait", WAIT)
        collected = run("gc", "--clusters", *sure)

    assert (deleted.code, collected.code) == (0, 0), deleted.err + collected.err
    assert "serviceaccount/rl-ray deleted" in deleted.out
    assert "serviceaccount/rl2-ray deleted" in collected.err
    # The API server was only told not to show these; an uninstalled KubeRay takes them along.
    assert set(objects_in(kuberay, namespace)) == {"RayCluster/rl", "RayCluster/rl2"}


def test_no_name_is_not_every_name(run, kuberay, namespace):
    assert run("cluster", *RL).code == 0
    before = set(objects_in(kuberay, namespace))
    refused = run("cluster", "delete", "", "--results", "--yes")
    assert refused.code == 2 and "no such cluster" in refused.err
    assert set(objects_in(kuberay, namespace)) == before


def test_a_job_that_is_over_is_not_sent_again_in_silence(run, kuberay, namespace):
    assert run("cluster", *NIGHT).code == 0
    over = {"status": {"jobDeploymentStatus": "Complete", "jobStatus": "SUCCEEDED"}}
    kuberay.admin.patch(f"{PLACES['RayJob'].format(namespace)}/night/status", over)
    again = run("cluster", *NIGHT)
    assert again.code == 2 and "does not run again" in again.err


def test_gc_of_sweeps_knows_nothing_of_clusters(run):
    for flag in ("--results", "--without_kuberay"):
        wrong = run("gc", flag, "--yes")
        assert wrong.code == 2 and f"{flag}: goes with --clusters only" in wrong.err


def test_a_launch_under_way_is_not_left_over():
    now = datetime.now(UTC)
    stamps = [now - timedelta(seconds=seconds) for seconds in (30, 900)]
    pieces = [_piece(stamp.strftime("%Y-%m-%dT%H:%M:%SZ")) for stamp in stamps]
    assert apply.cluster_leftovers(pieces, now) == []
    found = apply.cluster_leftovers(pieces[1:], now)
    assert [piece for piece, _ in found] == pieces[1:]


def _piece(stamp: str) -> Any:
    from ditk_ray.kube.objects import SERVICES, Piece

    labels = {"ditk-ray/cluster": "rl"}
    about = {"name": "rl-mlflow", "uid": stamp, "labels": labels, "creationTimestamp": stamp}
    return Piece(SERVICES, {"metadata": about})
