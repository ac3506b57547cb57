"""What the operator makes of a DIJob: pods, a Service, and a status."""

from __future__ import annotations

import copy
from typing import Any

from tests.kube.stand_in.events import now

Object = dict[str, Any]
OPERATOR = "di-operator"
API_VERSION = "diengine.opendilab.org/v2alpha1"
_DOMAIN = "svc.cluster.local"
_SERVER_URL = f"http://di-server.di-system.{_DOMAIN}:8081"
_PORT = {"name": "di-port", "port": 22270}
_TYPED = ("learner", "collector", "evaluator")


def violation(job: Object) -> str | None:
    """Return what the operator's validator objects to."""
    tasks = job["spec"]["tasks"]
    for task in tasks:
        if "type" not in task or "template" not in task:
            return "a task needs a type and a template"
        if task["type"] == "none" and not task.get("name"):
            return "a task of type none needs a name"
    for kind in _TYPED:
        if sum(task["type"] == kind for task in tasks) > 1:
            return f"there are several tasks of type {kind}"
    names = [task_name(task) for task in tasks]
    for name in names:
        if names.count(name) > 1:
            return f"there are several tasks named {name}"
    return None


def task_name(task: Object) -> str:
    return str(task.get("name") or task["type"])


def replicas(job: Object) -> int:
    return sum(task["replicas"] for task in job["spec"]["tasks"])


def job_labels(job: Object) -> dict[str, str]:
    return {"diengine/job": job["metadata"]["name"], "diengine/operator": OPERATOR}


def places(job: Object) -> list[tuple[Object, int]]:
    """Return the job's pods in the order of their ranks, as (task, index)."""
    return [(task, index) for task in job["spec"]["tasks"] for index in range(task["replicas"])]


def pod_name(job: Object, task: Object, index: int) -> str:
    return f"{job['metadata']['name']}-{task_name(task)}-{index}"


def build_pod(job: Object, task: Object, index: int, rank: int) -> Object:
    """Make a pod of a task: its spec alone is the template's."""
    name = pod_name(job, task, index)
    spec = copy.deepcopy(task["template"]["spec"])
    spec |= {"restartPolicy": "Never", "hostname": name, "subdomain": _service_name(job)}
    spec["volumes"] = spec.get("volumes", []) + copy.deepcopy(job["spec"].get("volumes", []))
    for container in spec["containers"]:
        container["env"] = container.get("env", []) + _environment(job, task, rank)
    labels = {
        **job_labels(job),
        "diengine/pod": name,
        "diengine/task-type": task["type"],
        "diengine/task-name": task_name(task),
    }
    annotations = {
        "diengine/replicas": str(replicas(job)),
        "diengine/rank": str(rank),
        "diengine/task-rank": str(index),
        "diengine/node": "",
    }
    metadata = {"name": name, "labels": labels, "annotations": annotations}
    return {"metadata": {**metadata, "ownerReferences": [_owner(job)]}, "spec": spec}


def build_service(job: Object) -> Object:
    labels = job_labels(job)
    metadata = {"name": _service_name(job), "labels": labels, "ownerReferences": [_owner(job)]}
    spec = {"clusterIP": "None", "selector": labels, "ports": [_PORT]}
    return {"metadata": metadata, "spec": spec}


def conditions(job: Object, phase: str, message: str) -> list[Object]:
    """Return the job's conditions with a new one, which alone is true."""
    at = now()
    before = [
        {**condition, "status": "False"}
        for condition in job.get("status", {}).get("conditions", [])
        if condition["type"] != phase
    ]
    new = {"type": phase, "status": "True", "reason": f"Job{phase}", "message": message}
    return [*before, {**new, "lastTransitionTime": at, "lastUpdateTime": at}]


def task_status(pods: list[Object]) -> dict[str, dict[str, int]]:
    """Count pods by task and phase."""
    found: dict[str, dict[str, int]] = {}
    for pod in pods:
        phases = found.setdefault(pod["metadata"]["labels"]["diengine/task-name"], {})
        phase = pod["status"]["phase"]
        phases[phase] = phases.get(phase, 0) + 1
    return found


def terminating(pod: Object) -> bool:
    return "deletionTimestamp" in pod["metadata"]


def ready(pods: list[Object]) -> int:
    """Count the containers that are ready, which is what the operator compares with replicas."""
    return sum(
        status["ready"]
        for pod in pods
        if not terminating(pod)
        for status in pod["status"].get("containerStatuses", [])
    )


def scheduled(pods: list[Object]) -> int:
    return sum(
        condition["type"] == "PodScheduled" and condition["status"] == "True"
        for pod in pods
        for condition in pod["status"].get("conditions", [])
    )


def counts_as_failed(pod: Object) -> bool:
    """Say whether the operator sees a pod as failed: some rejected pods are overlooked."""
    reason = pod["status"].get("reason", "")
    if pod["status"]["phase"] not in ("Failed", "Unknown") or terminating(pod):
        return False
    return reason != "UnexpectedAdmissionError" and not reason.startswith("Outof")


def cleaned_at_the_end(job: Object, pod: Object) -> bool:
    """Say whether `cleanPodPolicy` has a pod deleted once its job is over."""
    policy = job["spec"]["cleanPodPolicy"]
    if policy == "None" or terminating(pod):
        return False
    if policy == "All":
        return True
    states = [status["state"] for status in pod["status"].get("containerStatuses", [])]
    ended = any("terminated" in state for state in states)
    return pod["status"]["phase"] in ("Running", "Pending") and not ended


def _service_name(job: Object) -> str:
    return f"di-{job['metadata']['name']}"


def _owner(job: Object) -> Object:
    return {
        "apiVersion": API_VERSION,
        "kind": "DIJob",
        "name": job["metadata"]["name"],
        "uid": job["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def _environment(job: Object, task: Object, rank: int) -> list[Object]:
    namespace = job["metadata"]["namespace"]
    hosts = {
        (task_name(other), index): ".".join(
            [pod_name(job, other, index), _service_name(job), namespace, _DOMAIN]
        )
        for other, index in places(job)
    }
    name = task_name(task)
    own = [host for (other, _), host in hosts.items() if other == name]
    variable = f"DI_{name.upper().replace('-', '_')}_NODES"
    values = {
        "DI_JOB_ID": f"{namespace}/{job['metadata']['name']}",
        "DI_SERVER_URL": _SERVER_URL,
        "DI_RANK": str(rank),
        "DI_NODES": ",".join(hosts.values()),
        variable: ",".join(own),
    }
    return [{"name": key, "value": value} for key, value in values.items()]
