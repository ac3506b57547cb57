"""`ditk-ray gc`, on a real API server."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

from ditk_ray.cli.main import main
from ditk_ray.config.options import KubeSettings
from ditk_ray.dijob.jobs import ALIVE_AT, heartbeat_name
from ditk_ray.dijob.liveness import Heartbeat, find_leftovers, sweep_of
from ditk_ray.kube.connection import Kube, connect
from tests.kube.api_server import ApiServer
from tests.kube.job_files import dijob, task, write_job

pytestmark = pytest.mark.kube

LIVING, DEAD, SILENT = "living-000000", "dead-111111", "silent-222222"


@pytest.fixture
def cluster(kube: ApiServer, namespace: str, monkeypatch: pytest.MonkeyPatch) -> Kube:
    """A namespace with jobs of a living sweep, of a dead one, and of one that lost its sign."""
    monkeypatch.setenv("KUBECONFIG", str(kube.kubeconfig(namespace=namespace)))
    cluster = connect(KubeSettings())
    for sweep in (LIVING, DEAD, SILENT):
        labels = {"app.kubernetes.io/managed-by": "ditk-ray", "ditk-ray/sweep": sweep}
        cluster.dijobs.create(dijob(f"of-{sweep}", task("none", "true"), labels=labels))
    theirs = {"app.kubernetes.io/managed-by": "somebody", "ditk-ray/sweep": DEAD}
    cluster.dijobs.create(dijob("of-somebody", task("none", "true"), labels=theirs))
    Heartbeat(cluster.config_maps, LIVING).beat()
    silent_for(cluster, DEAD, timedelta(minutes=11))
    return cluster


def silent_for(cluster: Kube, sweep: str, since: timedelta) -> None:
    Heartbeat(cluster.config_maps, sweep).beat()
    stamp = (datetime.now(UTC) - since).strftime("%Y-%m-%dT%H:%M:%SZ")
    changes = {"metadata": {"annotations": {ALIVE_AT: stamp}}}
    cluster.config_maps.patch(heartbeat_name(sweep), changes)


def left(cluster: Kube) -> tuple[list[str], list[str]]:
    """Return the names of the jobs and of the ConfigMaps that are there."""
    jobs, maps = cluster.dijobs.list(), cluster.config_maps.list()
    return (
        sorted(item["metadata"]["name"] for item in jobs),
        sorted(item["metadata"]["name"] for item in maps),
    )


def test_what_dead_sweeps_left_is_shown_and_deleted(cluster, tmp_path, capsys):
    assert main(["dijob", "create", "-f", write_job(tmp_path, "single", "true")]) == 0
    capsys.readouterr()

    assert main(["gc", "--yes"]) == 0

    said = capsys.readouterr()
    rows = [line.split() for line in said.out.splitlines()]
    assert rows[0] == ["KIND", "NAME", "SWEEP", "AGE", "WHY"]
    assert [row[:3] for row in rows[1:]] == [
        ["DIJob", f"of-{DEAD}", DEAD],
        ["ConfigMap", f"ditk-ray-{DEAD}", DEAD],
    ]
    assert "gave its last sign of life 11m ago" in said.out
    assert said.err.count(" deleted\n") == 2
    kept = [f"of-{LIVING}", f"of-{SILENT}", "of-somebody", "single"]
    assert left(cluster) == (kept, [f"ditk-ray-{LIVING}"])


def test_a_sweep_without_a_sign_of_life_has_only_begun_unless_its_jobs_are_old(cluster):
    now = datetime.now(UTC)
    assert {sweep_of(piece.manifest) for piece, _ in find_leftovers(cluster, now)} == {DEAD}
    later = now + timedelta(minutes=11)
    silent_for(cluster, LIVING, -timedelta(minutes=11))
    found = {piece.name: why for piece, why in find_leftovers(cluster, later)}
    assert found.keys() == {f"of-{DEAD}", f"ditk-ray-{DEAD}", f"of-{SILENT}"}
    assert found[f"of-{SILENT}"] == "its sweep gives no sign of life"


def test_nothing_left_over_is_said(cluster, capsys):
    assert main(["gc", "--yes"]) == 0
    capsys.readouterr()
    assert main(["gc"]) == 0
    said = capsys.readouterr()
    expected = f"nothing is left over in namespace {cluster.namespace!r}\n"
    assert (said.out, said.err) == ("", expected)


def test_nothing_is_deleted_without_a_yes(cluster, capsys):
    before = left(cluster)
    assert main(["gc"]) == 2
    assert "--yes" in capsys.readouterr().err
    assert main(["gc", "--format", "json"]) == 0
    assert {item["sweep"] for item in json.loads(capsys.readouterr().out)} == {DEAD}
    assert left(cluster) == before


def test_a_sweep_that_came_to_life_while_the_question_stood_is_spared(cluster, monkeypatch):
    def agree(question: str, is_yes: bool) -> bool:
        Heartbeat(cluster.config_maps, DEAD).beat()
        return True

    monkeypatch.setattr("ditk_ray.cli.gc.agrees", agree)
    assert main(["gc"]) == 0
    kept = [f"of-{DEAD}", f"of-{LIVING}", f"of-{SILENT}", "of-somebody"]
    assert left(cluster)[0] == kept


def test_a_sweep_may_be_silent_for_nearly_ten_minutes(cluster, capsys):
    silent_for(cluster, SILENT, timedelta(minutes=9, seconds=30))
    assert main(["gc", "--format", "json"]) == 0
    assert {item["sweep"] for item in json.loads(capsys.readouterr().out)} == {DEAD}
