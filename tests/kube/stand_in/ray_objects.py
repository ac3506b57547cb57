"""The objects that KubeRay makes for a RayCluster, and what it says of it."""

from __future__ import annotations

import base64
import secrets
from typing import Any

from tests.kube.stand_in.events import now

Object = dict[str, Any]
_PORTS = {"gcs-server": 6379, "dashboard": 8265, "client": 10001}


def labels(cluster: Object, group: str, kind: str) -> dict[str, str]:
    name = cluster["metadata"]["name"]
    return {
        "app.kubernetes.io/created-by": "kuberay-operator",
        "app.kubernetes.io/name": "kuberay",
        "ray.io/cluster": name,
        "ray.io/group": group,
        "ray.io/identifier": f"{name}-{kind}",
        "ray.io/is-ray-node": "yes",
        "ray.io/node-type": kind,
    }


def owned(owner: Object, kind: str) -> list[Object]:
    api = "ray.io/v1" if kind.startswith("Ray") else "apps/v1"
    metadata = owner["metadata"]
    reference = {"apiVersion": api, "kind": kind, "controller": True, "blockOwnerDeletion": True}
    return [{**reference, "name": metadata["name"], "uid": metadata["uid"]}]


def head_pod(cluster: Object) -> Object:
    template = cluster["spec"]["headGroupSpec"]["template"]
    name = f"{cluster['metadata']['name']}-head-{secrets.token_hex(3)}"
    return _pod(cluster, template, name, labels(cluster, "headgroup", "head"))


def worker_pod(cluster: Object, group: Object) -> Object:
    name = f"{cluster['metadata']['name']}-{group['groupName']}-worker-{secrets.token_hex(3)}"
    return _pod(cluster, group["template"], name, labels(cluster, group["groupName"], "worker"))


def deployed_pod(deployment: Object) -> Object:
    """Make the pod that a Deployment's controllers would."""
    name = f"{deployment['metadata']['name']}-{secrets.token_hex(3)}"
    pod = _pod(deployment, deployment["spec"]["template"], name, {})
    pod["metadata"]["ownerReferences"] = owned(deployment, "Deployment")
    return pod


def _pod(owner: Object, template: Object, name: str, extra: dict[str, str]) -> Object:
    metadata = template.get("metadata") or {}
    return {
        "metadata": {
            "name": name,
            "labels": {**(metadata.get("labels") or {}), **extra},
            "ownerReferences": owned(owner, "RayCluster"),
        },
        "spec": dict(template["spec"]),
    }


def head_service(cluster: Object) -> Object:
    name = f"{cluster['metadata']['name']}-head-svc"
    own = labels(cluster, "headgroup", "head")
    selector = {key: own[key] for key in ("ray.io/cluster", "ray.io/node-type")}
    ports = [{"name": key, "port": port, "targetPort": port} for key, port in _PORTS.items()]
    return {
        "metadata": {"name": name, "labels": own, "ownerReferences": owned(cluster, "RayCluster")},
        # Headless, as KubeRay makes it by default.
        "spec": {"clusterIP": "None", "selector": selector, "ports": ports},
    }


def token_secret(cluster: Object, token: str) -> Object:
    name = cluster["metadata"]["name"]
    return {
        "metadata": {"name": name, "ownerReferences": owned(cluster, "RayCluster")},
        "data": {"auth_token": base64.b64encode(token.encode()).decode()},
    }


def endpoints(service: Object, pods: list[Object]) -> Object:
    """Return where a Service leads, as Kubernetes' own controller counts it."""
    selector = service["spec"].get("selector") or {}
    chosen = [pod for pod in pods if selector.items() <= pod["metadata"]["labels"].items()]
    addresses = [
        {
            "ip": pod["status"]["podIP"],
            "targetRef": {
                "kind": "Pod",
                "name": pod["metadata"]["name"],
                "namespace": pod["metadata"]["namespace"],
            },
        }
        for pod in chosen
        if is_ready(pod)
    ]
    ports = [
        {**({"name": each["name"]} if "name" in each else {}), "port": _target(each, chosen)}
        for each in service["spec"]["ports"]
    ]
    subsets = [{"addresses": addresses, "ports": ports}] if addresses else []
    return {"metadata": {"name": service["metadata"]["name"]}, "subsets": subsets}


def _target(port: Object, pods: list[Object]) -> int:
    wanted = port.get("targetPort") or port["port"]
    named = {
        each.get("name"): int(each["containerPort"])
        for pod in pods
        for container in pod["spec"]["containers"]
        for each in container.get("ports") or []
    }
    return wanted if isinstance(wanted, int) else named.get(wanted, int(port["port"]))


def is_ready(pod: Object) -> bool:
    conditions = pod.get("status", {}).get("conditions") or []
    return "deletionTimestamp" not in pod["metadata"] and any(
        each["type"] == "Ready" and each["status"] == "True" for each in conditions
    )


def replicas(group: Object) -> int:
    least, most = int(group["minReplicas"]), int(group["maxReplicas"])
    return min(max(int(group.get("replicas", least)), least), most)


def cluster_status(cluster: Object, pods: list[Object], failure: str) -> Object:
    """Return the status that KubeRay writes."""
    groups = cluster["spec"].get("workerGroupSpecs") or []
    heads = [pod for pod in pods if pod["metadata"]["labels"]["ray.io/node-type"] == "head"]
    workers = [pod for pod in pods if pod not in heads]
    desired, ready = sum(map(replicas, groups)), sum(map(is_ready, workers))
    is_head_ready = any(map(is_ready, heads))
    was_provisioned = any(
        each["type"] == "RayClusterProvisioned" and each["status"] == "True"
        for each in cluster.get("status", {}).get("conditions") or []
    )
    is_provisioned = was_provisioned or (is_head_ready and ready >= desired)
    suspended = bool(cluster["spec"].get("suspend"))
    status: Object = {
        "desiredWorkerReplicas": desired,
        "readyWorkerReplicas": ready,
        "availableWorkerReplicas": len(workers),
        "minWorkerReplicas": sum(int(group["minReplicas"]) for group in groups),
        "maxWorkerReplicas": sum(int(group["maxReplicas"]) for group in groups),
        "head": {"serviceName": f"{cluster['metadata']['name']}-head-svc"},
        "conditions": _conditions(
            HeadPodReady=(is_head_ready, "HeadPodRunningAndReady", "the head"),
            RayClusterProvisioned=(is_provisioned, "AllPodRunningAndReadyFirstTime", "all pods"),
            RayClusterReplicaFailure=(bool(failure), "FailedCreateWorkerPod", failure or "none"),
            RayClusterSuspended=(suspended, "RayClusterSuspended", "suspended"),
        ),
        "observedGeneration": cluster["metadata"]["generation"],
    }
    # The tests' API server takes no empty texts in custom resources.
    if failure:
        status["reason"] = failure
    if heads:
        status["head"]["podName"] = heads[0]["metadata"]["name"]
    if suspended:
        status["state"] = "suspended"
    elif is_provisioned:
        status["state"] = "ready"
    return status


def _conditions(**given: tuple[bool, str, str]) -> list[Object]:
    return [
        {
            "type": kind,
            "status": "True" if holds else "False",
            "reason": reason,
            "message": message,
            "lastTransitionTime": now(),
        }
        for kind, (holds, reason, message) in given.items()
    ]
