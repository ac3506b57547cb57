"""Judging a Ray cluster by the API server's objects, which are written out here."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from ditk_ray.kuberay.health import Health, Seen, State, health_of, job_health
from ditk_ray.kuberay.ray_cluster import RayCluster
from tests.kube.ray_manifests import group, ray_cluster, ray_job

NOW = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
READY = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
UNSCHEDULABLE = {
    "phase": "Pending",
    "conditions": [
        {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": "0/3 nodes are available: 3 Insufficient nvidia.com/gpu.",
        }
    ],
}
Object = dict[str, Any]


def metadata(name: str, age: float = 300, **more: Any) -> Object:
    made = (NOW - timedelta(seconds=age)).isoformat()
    return {"name": name, "namespace": "ns", "creationTimestamp": made, **more}


def pod(name: str, status: Object, group: str = "workers") -> Object:
    kind = "head" if group == "headgroup" else "worker"
    labels = {"ray.io/cluster": "rl", "ray.io/node-type": kind, "ray.io/group": group}
    return {"metadata": metadata(name, labels=labels), "spec": {}, "status": status}


def waiting(reason: str, message: str, **container: Any) -> Object:
    state = {"waiting": {"reason": reason, "message": message}}
    return {"phase": "Pending", "containerStatuses": [{"name": "ray", "state": state, **container}]}


HEAD = pod("rl-head", READY, "headgroup")
WORKER = pod("rl-worker-1", READY)


def service(name: str, **ports: int) -> Object:
    listed = [{"name": key, "port": port} for key, port in ports.items()]
    return {"metadata": metadata(name), "spec": {"ports": listed}}


def seen(*pods: Object, cluster: Object | None = None, age: float = 300, **more: Any) -> Seen:
    """Return a cluster whose head's Service leads to a pod, and that KubeRay has looked at."""
    found = cluster or ray_cluster()
    found["metadata"] = {**found["metadata"], **metadata("rl", age)}
    found.setdefault("status", {"state": "ready"})
    head = "rl-head-svc"
    parts: dict[str, Any] = {
        "services": {head: service(head, dashboard=8265)},
        "endpoints": {head: {"subsets": [{"addresses": [{"ip": "10.0.0.1"}]}]}},
    }
    return Seen(cluster=RayCluster(found), pods=pods, **(parts | more))


def judge(*pods: Object, **more: Any) -> Health:
    return health_of(seen(*pods, **more), NOW)


def test_a_cluster_with_a_head_that_answers_and_its_workers_is_ready() -> None:
    health = judge(HEAD, WORKER)
    assert (health.is_ready, health.state, health.why) == (True, State.READY, "")
    assert health.job_address == "http://rl-head-svc.ns.svc:8265"
    assert (health.mlflow_uri, health.token_secret) == (None, "rl")
    assert str(health.workers) == "1/1 (0-4)"
    assert [each["group"] for each in health.pods] == ["head", "workers"]
    assert health.age == 300


def test_workers_are_counted_by_group_and_those_that_go_do_not_count() -> None:
    cluster = ray_cluster("rl", group("a", 2, 1, 3), group("b", 1))
    going = pod("rl-a-2", READY, "a")
    going["metadata"]["deletionTimestamp"] = "2026-01-01T12:00:00Z"
    health = judge(HEAD, pod("rl-a-1", READY, "a"), going, cluster=cluster)
    assert [(each.name, str(each)) for each in health.groups] == [
        ("a", "1/2 (1-3)"),
        ("b", "0/1 (0-4)"),
    ]
    assert (health.is_ready, health.why) == (False, "1 of 3 workers are ready")


def test_an_autoscaled_cluster_is_ready_with_its_least_number_of_workers() -> None:
    cluster = ray_cluster("rl", group(replicas=3, least=0), enableInTreeAutoscaling=True)
    assert judge(HEAD, cluster=cluster).is_ready


def test_a_head_that_the_service_does_not_lead_to_yet_is_not_ready() -> None:
    health = judge(HEAD, WORKER, endpoints={})
    assert (health.state, health.why) == (
        State.STARTING,
        "the Service rl-head-svc does not lead to its head yet",
    )


def test_a_cluster_that_was_whole_and_lost_a_worker_is_degraded() -> None:
    condition = {"type": "RayClusterProvisioned", "status": "True"}
    cluster = {**ray_cluster(), "status": {"state": "ready", "conditions": [condition]}}
    assert judge(HEAD, cluster=cluster).state is State.DEGRADED


def test_the_schedulers_own_words_are_told_once_for_pods_that_are_alike() -> None:
    cluster = ray_cluster("rl", group(replicas=3))
    pods = [pod(f"rl-worker-{number}", UNSCHEDULABLE) for number in range(3)]
    health = judge(HEAD, *pods, cluster=cluster)
    (problem,) = health.problems
    assert problem.what == health.why
    assert health.why == (
        "pod rl-worker-0 (and 2 like it) is not scheduled: Unschedulable: "
        "0/3 nodes are available: 3 Insufficient nvidia.com/gpu."
    )
    assert "no node has room" in problem.hint


@pytest.mark.parametrize(
    ("status", "what", "hint"),
    [
        (waiting("ImagePullBackOff", "manifest unknown"), "manifest unknown", "image"),
        (waiting("CreateContainerConfigError", 'secret "rl" not found'), 'secret "rl"', "Secret"),
        (
            waiting(
                "CrashLoopBackOff",
                "back-off 40s",
                restartCount=4,
                lastState={"terminated": {"exitCode": 137, "reason": "OOMKilled"}},
            ),
            "it ended 4 times, the last time with exit code 137 (OOMKilled)",
            "kubectl logs",
        ),
    ],
)
def test_what_a_head_waits_for_is_told_with_what_helps(
    status: Object, what: str, hint: str
) -> None:
    health = judge(pod("rl-head", status, "headgroup"))
    assert not health.is_ready
    assert what in health.why
    assert hint in health.problems[0].hint


def test_a_quota_that_is_used_up_is_told_in_kuberays_words() -> None:
    condition = {
        "type": "RayClusterReplicaFailure",
        "status": "True",
        "reason": "FailedCreateWorkerPod",
        "message": 'pods "rl-x" is forbidden: exceeded quota: small',
    }
    health = judge(HEAD, cluster={**ray_cluster(), "status": {"conditions": [condition]}})
    assert health.state is State.FAILED
    assert health.why.startswith('KubeRay: FailedCreateWorkerPod: pods "rl-x" is forbidden')
    assert "quota is used up" in health.problems[0].hint


def test_a_cluster_that_kueue_holds_back_names_the_queue() -> None:
    cluster = ray_cluster(suspend=True)
    cluster["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = "research"
    health = judge(cluster=cluster)
    assert health.state is State.SUSPENDED
    assert "Kueue has not admitted it from queue 'research'" in health.why


def test_an_operator_that_is_silent_is_given_half_a_minute() -> None:
    young, old = ({**ray_cluster(), "status": {}} for _ in range(2))
    assert judge(cluster=young, age=5).problems == ()
    (problem,) = judge(cluster=old, age=45).problems
    assert problem.what == "the KubeRay operator has not processed it for 45s"
    assert "ditk-ray cluster check" in problem.hint


def test_where_no_pod_says_anything_warnings_do_and_those_of_others_do_not() -> None:
    about = {"kind": "Pod", "name": "rl-head"}
    said = {"reason": "FailedMount", "message": 'volume "results" times out'}
    warning = {"metadata": {}, "involvedObject": about, **said}
    other = {**warning, "involvedObject": {"kind": "Pod", "name": "another"}, "message": "no"}
    starting = pod("rl-head", {"phase": "Pending"}, "headgroup")
    health = judge(starting, warnings=[other, warning])
    assert [each.what for each in health.problems] == [
        'pod rl-head: FailedMount: volume "results" times out'
    ]


def test_an_mlflow_that_does_not_answer_keeps_a_cluster_from_being_ready() -> None:
    services = seen().services | {"rl-mlflow": service("rl-mlflow", http=5000)}
    health = judge(HEAD, WORKER, services=services)
    assert (health.is_ready, health.why) == (False, "its MLflow is not ready")
    assert health.mlflow_uri == "http://rl-mlflow.ns.svc:5000"
    served = seen().endpoints | {"rl-mlflow": {"subsets": [{"addresses": [{}]}]}}
    assert judge(HEAD, WORKER, services=services, endpoints=served).is_ready


def test_the_cluster_of_a_ray_job_finds_the_mlflow_that_was_launched_with_it() -> None:
    cluster = ray_cluster("night")
    services = {"night-mlflow": service("night-mlflow", http=5000)}
    assert judge(cluster=cluster, services=services).mlflow_uri == "http://night-mlflow.ns.svc:5000"


def job(age: float = 10, **status: Any) -> Any:
    return job_health(
        {**ray_job("night"), "metadata": metadata("night", age), "status": status}, NOW
    )


def test_a_ray_job_is_over_when_kuberay_does_nothing_more_for_it() -> None:
    running = job(jobDeploymentStatus="Running", jobStatus="RUNNING", rayClusterName="night-x")
    assert (running.is_over, running.is_ok, running.cluster) == (False, True, "night-x")
    for state in ("Failed", "ValidationFailed"):
        failed = job(jobDeploymentStatus=state, reason="AppFailed", message="exit code 3")
        assert (failed.is_over, failed.is_ok) == (True, False)
        assert failed.why == "AppFailed: exit code 3"
    assert job(jobDeploymentStatus="Complete", jobStatus="SUCCEEDED").is_ok
    assert not job(jobDeploymentStatus="Complete", jobStatus="FAILED").is_ok


def test_a_ray_job_that_nobody_looks_at_says_so() -> None:
    assert job().why == ""
    assert "the KubeRay operator has not processed it for 45s" in job(age=45).why
