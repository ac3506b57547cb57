"""The stand-in for operator, scheduler and kubelet, as somebody sees it who watches DIJobs."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kube.api_client import DIJOBS
from tests.kube.api_server import ApiServer
from tests.kube.stand_in.cluster import StandInCluster
from tests.kube.stand_in.containers import Simulated
from tests.processes import PATIENCE, processes_in, wait_until

pytestmark = pytest.mark.kube


def job(name: str, *commands: str, **spec: Any) -> dict[str, Any]:
    """Make a job with a task for each shell command."""
    kinds = ["none", "learner", "collector"]
    tasks = []
    for kind, command in zip(kinds, commands, strict=False):
        container = {"name": "di-container", "image": "none", "command": ["bash", "-c", command]}
        pod = {"containers": [container], "terminationGracePeriodSeconds": 5}
        named = {"name": "serial"} if kind == "none" else {}
        tasks.append({"type": kind, **named, "template": {"spec": pod}})
    body = {"backoffLimit": 0, "tasks": tasks, **spec}
    return {
        "apiVersion": "diengine.opendilab.org/v2alpha1",
        "kind": "DIJob",
        "metadata": {"name": name},
        "spec": body,
    }


def until(file: Path) -> str:
    """Return the command that waits for a file."""
    return f"until [ -e {file} ]; do sleep 0.1; done"


@pytest.fixture
def submit(kube: ApiServer, namespace: str) -> Any:
    path = f"{DIJOBS}/namespaces/{namespace}/dijobs"
    return lambda body: kube.admin.create(path, body)


def test_a_job_runs_its_command_with_the_operators_environment_and_succeeds(
    kube: ApiServer, namespace: str, stand_in: StandInCluster, submit: Any, tmp_path: Path
) -> None:
    shown = "echo $DI_JOB_ID $DI_RANK $DI_SERIAL_NODES; hostname"
    submit(job("first", f"{shown}; {until(tmp_path / 'go')}"))
    stand_in.wait_for_phase("first", "Running")
    (tmp_path / "go").touch()
    done = stand_in.wait_for_phase("first", "Succeeded")
    (pod,) = stand_in.pods("first")
    assert pod["metadata"]["name"] == "first-serial-0"
    assert pod["metadata"]["labels"]["diengine/task-name"] == "serial"
    log = kube.admin.text(f"api/v1/namespaces/{namespace}/pods/first-serial-0/log")
    host = f"first-serial-0.di-first.{namespace}.svc.cluster.local"
    assert log == f"{namespace}/first 0 {host}\nfirst-serial-0\n"
    true = [one["type"] for one in done["status"]["conditions"] if one["status"] == "True"]
    assert true == ["Succeeded"]


def test_volumes_are_in_place_and_a_late_config_map_is_waited_for(
    kube: ApiServer, namespace: str, stand_in: StandInCluster, submit: Any, tmp_path: Path
) -> None:
    command = "python /etc/config/config.py > /mnt/nowhere/deep/out; echo gone > /etc/own"
    body = job("mounts", command)
    pod = body["spec"]["tasks"][0]["template"]["spec"]
    pod["containers"][0]["volumeMounts"] = [
        {"name": "config", "mountPath": "/etc/config"},
        {"name": "data", "mountPath": "/mnt/nowhere/deep"},
    ]
    pod["volumes"] = [
        {"name": "config", "configMap": {"name": "script"}},
        {"name": "data", "hostPath": {"path": str(tmp_path)}},
    ]
    submit(body)
    seen = lambda: {event["reason"] for event in stand_in.events("mounts-serial-0")}  # noqa: E731
    wait_until(lambda: "FailedMount" in seen(), 10, "the kubelet to miss the ConfigMap")
    script = {"metadata": {"name": "script"}, "data": {"config.py": "print(6 * 7)"}}
    kube.admin.create(f"api/v1/namespaces/{namespace}/configmaps", script)
    stand_in.wait_for_phase("mounts", "Succeeded")
    assert (tmp_path / "out").read_text() == "42\n"
    assert not Path("/mnt/nowhere").exists() and not Path("/etc/config").exists()


def test_a_log_is_followed_while_the_pod_runs(
    kube: ApiServer, namespace: str, stand_in: StandInCluster, submit: Any, tmp_path: Path
) -> None:
    submit(job("lines", f"echo one; {until(tmp_path / 'go')}; echo two"))
    stand_in.wait_for_phase("lines", "Running")
    path = f"api/v1/namespaces/{namespace}/pods/lines-serial-0/log"
    with kube.admin.stream(path, follow="true", timestamps="true") as answer:
        pieces = answer.stream()
        first = next(pieces)
        (tmp_path / "go").touch()
        rest = b"".join(pieces)
    assert first.endswith(b"Z one\n") and rest.endswith(b"Z two\n")


def test_a_failure_uses_up_the_backoff_and_takes_the_first_log_with_it(
    stand_in: StandInCluster, submit: Any
) -> None:
    submit(job("twice", "exit 3", backoffLimit=1))
    done = stand_in.wait_for_phase("twice", "Failed")
    assert wait_until(lambda: stand_in.job("twice")["status"]["restarts"] == 1, 5, "the count")
    (pod,) = stand_in.pods("twice")
    assert pod["metadata"]["annotations"]["diengine/rank"] == "1"
    state = pod["status"]["containerStatuses"][0]["state"]["terminated"]
    assert (state["exitCode"], state["reason"]) == (3, "Error")
    assert done["status"]["phase"] == "Failed"


def test_the_policy_of_all_deletes_pods_and_services_at_the_end(
    kube: ApiServer, namespace: str, stand_in: StandInCluster, submit: Any
) -> None:
    submit(job("clean", "true", cleanPodPolicy="All"))
    stand_in.wait_for_phase("clean", "Succeeded")
    wait_until(lambda: not stand_in.pods("clean"), 5, "the pods to be deleted")
    services = f"api/v1/namespaces/{namespace}/services"
    wait_until(lambda: not kube.admin.get(services)["items"], 5, "the service to be deleted")


def test_a_deleted_job_takes_its_pods_and_processes_with_it(
    kube: ApiServer, namespace: str, stand_in: StandInCluster, submit: Any, tmp_path: Path
) -> None:
    body = job("deleted", f"cd {tmp_path}; (setsid sleep 100 &); sleep 100")
    submit(body)
    stand_in.wait_for_phase("deleted", "Running")
    wait_until(lambda: len(processes_in(tmp_path)) >= 2, 5, "the processes")
    path = f"{DIJOBS}/namespaces/{namespace}/dijobs/deleted"
    kube.admin.delete(path, propagationPolicy="Background")
    wait_until(lambda: not stand_in.pods("deleted"), 10, "the pods to be deleted")
    wait_until(lambda: not processes_in(tmp_path), 5, "the processes to end")


def test_a_pod_that_somebody_deletes_is_made_again(
    kube: ApiServer, namespace: str, stand_in: StandInCluster, submit: Any
) -> None:
    submit(job("again", "sleep 100", "sleep 100"))
    stand_in.wait_for_phase("again", "Running")
    kube.admin.delete(f"api/v1/namespaces/{namespace}/pods/again-learner-0")
    wait_until(lambda: stand_in.job("again")["status"].get("reschedules"), 10, "rescheduling")
    stand_in.wait_for_phase("again", "Running")
    assert {pod["metadata"]["name"] for pod in stand_in.pods("again")} == {
        "again-serial-0",
        "again-learner-0",
    }


def test_two_tasks_of_a_type_turn_a_job_failed(stand_in: StandInCluster, submit: Any) -> None:
    body = job("wrong", "true")
    task = {**body["spec"]["tasks"][0], "type": "learner"}
    body["spec"]["tasks"] = [task, {**task, "name": "other"}]
    submit(body)
    stand_in.wait_for_phase("wrong", "Failed")
    assert not stand_in.pods("wrong")


def test_pods_die_in_the_ways_they_are_told_to(stand_in: StandInCluster, submit: Any) -> None:
    for name in ("memory", "evicted", "lost"):
        submit(job(name, "sleep 100"))
        stand_in.wait_for_phase(name, "Running")
    stand_in.oom_kill("memory-serial-0")
    stand_in.evict("evicted-serial-0")
    for name in ("memory", "evicted"):
        stand_in.wait_for_phase(name, "Failed")
    (memory,), (evicted,) = stand_in.pods("memory"), stand_in.pods("evicted")
    state = memory["status"]["containerStatuses"][0]["state"]["terminated"]
    assert (state["reason"], state["exitCode"]) == ("OOMKilled", 137)
    assert evicted["status"]["reason"] == "Evicted"
    stand_in.lose_node()
    stand_in.wait_for_phase("lost", "Failed")
    assert stand_in.pods("lost")[0]["status"]["reason"] == "NodeLost"
    submit(job("next", "true"))
    stand_in.wait_for_phase("next", "Succeeded")


def test_pods_that_cannot_start_say_why_and_start_when_they_can(
    stand_in: StandInCluster, submit: Any
) -> None:
    stand_in.never_schedule("nowhere*")
    stand_in.fail_to_pull("noimage*")
    submit(job("nowhere", "true"))
    submit(job("noimage", "true"))

    def reasons(name: str) -> set[str]:
        return {event["reason"] for event in stand_in.events(f"{name}-serial-0")}

    wait_until(lambda: "FailedScheduling" in reasons("nowhere"), 10, "the scheduler to say why")
    wait_until(lambda: "BackOff" in reasons("noimage"), 10, "the kubelet to say why")
    assert stand_in.phase("nowhere") == stand_in.phase("noimage") == "Starting"
    stand_in.behave()
    for name in ("nowhere", "noimage"):
        stand_in.wait_for_phase(name, "Succeeded")


def test_a_job_whose_pod_is_rejected_by_its_node_hangs(
    stand_in: StandInCluster, submit: Any
) -> None:
    stand_in.reject("hanging")
    submit(job("hanging", "true"))
    stand_in.wait_for_phase("hanging", "Starting")
    wait_until(lambda: stand_in.pods("hanging")[0]["status"]["phase"] == "Failed", 5, "the pod")
    time.sleep(0.3)
    assert stand_in.phase("hanging") == "Starting"


def test_a_quota_turns_a_job_failed_when_there_is_no_backoff(
    stand_in: StandInCluster, submit: Any
) -> None:
    stand_in.quota(pods=0)
    submit(job("many", "true"))
    stand_in.wait_for_phase("many", "Failed")
    reasons = {event["reason"] for event in stand_in.events("many")}
    assert "FailedCreate" in reasons


def test_what_happened_while_the_operator_was_down_is_seen_when_it_is_back(
    kube: ApiServer, stand_in: StandInCluster, submit: Any, tmp_path: Path
) -> None:
    submit(job("during", until(tmp_path / "go")))
    stand_in.wait_for_phase("during", "Running")
    stand_in.crash()
    (tmp_path / "go").touch()
    submit(job("new", "true"))
    wait_until(
        lambda: stand_in.pods("during")[0]["status"]["phase"] == "Succeeded", 10, "the pod's end"
    )
    assert stand_in.phase("during") == "Running" and stand_in.phase("new") == ""
    kube.restart()
    stand_in.come_back()
    for name in ("during", "new"):
        stand_in.wait_for_phase(name, "Succeeded")


def test_fifty_simulated_pods_run_at_once(
    kube: ApiServer, namespace: str, submit: Any, tmp_path: Path
) -> None:
    all_run, threads = threading.Event(), threading.active_count()

    def lines() -> Iterator[tuple[float, str]]:
        all_run.wait(200 * PATIENCE)
        yield from ((0.0, f"line {number}") for number in range(10))

    with StandInCluster(kube, namespace, tmp_path, lambda pod: Simulated(lines())) as cluster:
        names = [f"job-{number:03}" for number in range(50)]
        for name in names:
            submit(job(name, "no matter"))
        for name in names:
            cluster.wait_for_phase(name, "Running", 60)
        all_run.set()
        for name in names:
            cluster.wait_for_phase(name, "Succeeded", 60)
        path = f"api/v1/namespaces/{namespace}/pods/job-007-serial-0/log"
        assert kube.admin.text(path).splitlines() == [f"line {number}" for number in range(10)]
    wait_until(lambda: threading.active_count() <= threads, 10, "the threads to end")
