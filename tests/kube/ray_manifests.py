"""RayClusters and what goes with them, as tests need them: small, and complete for the API."""

from __future__ import annotations

from typing import Any

from tests.kube.api_client import ApiClient
from tests.kube.kuberay_crds import RAY

Object = dict[str, Any]


def pod_template(name: str, **ports: int) -> Object:
    container: Object = {"name": name, "image": "example.com/rl:1"}
    container["ports"] = [{"name": key, "containerPort": port} for key, port in ports.items()]
    return {"metadata": {}, "spec": {"containers": [container]}}


def group(name: str = "workers", replicas: int = 1, least: int = 0, most: int = 4) -> Object:
    numbers = {"replicas": replicas, "minReplicas": least, "maxReplicas": most}
    template = pod_template("ray-worker")
    return {"groupName": name, **numbers, "rayStartParams": {}, "template": template}


def ray_cluster(name: str = "rl", *groups: Object, **spec: Any) -> Object:
    head = {"rayStartParams": {}, "template": pod_template("ray-head", dashboard=8265)}
    labels = {"app.kubernetes.io/managed-by": "ditk-ray", "ditk-ray/cluster": name}
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "rayVersion": "2.60.0",
            "authOptions": {"mode": "token"},
            "headGroupSpec": head,
            "workerGroupSpecs": list(groups or [group()]),
            **spec,
        },
    }


def ray_job(name: str) -> Object:
    cluster = ray_cluster(name)
    spec = {"entrypoint": "true", "submissionMode": "HTTPMode", "rayClusterSpec": cluster["spec"]}
    return {**cluster, "kind": "RayJob", "spec": spec}


def mlflow(name: str = "rl") -> tuple[Object, Object]:
    """Return the Service and the Deployment that `cluster launch` makes beside a cluster."""
    labels = {"app.kubernetes.io/name": "mlflow", "ditk-ray/cluster": name}
    metadata = {"name": f"{name}-mlflow", "labels": {"ditk-ray/cluster": name}}
    port = {"name": "http", "port": 5000, "targetPort": "http"}
    template = pod_template("mlflow", http=5000)
    template["metadata"]["labels"] = labels
    service = {"metadata": metadata, "spec": {"selector": labels, "ports": [port]}}
    selector = {"matchLabels": labels}
    deployment = {"metadata": metadata, "spec": {"selector": selector, "template": template}}
    return service, deployment


def make(admin: ApiClient, namespace: str, *bodies: Object) -> None:
    """Make RayClusters and RayJobs."""
    for body in bodies:
        plural = f"{body['kind'].lower()}s"
        admin.create(f"{RAY}/namespaces/{namespace}/{plural}", body)


def make_mlflow(admin: ApiClient, namespace: str, name: str = "rl") -> None:
    service, deployment = mlflow(name)
    admin.create(f"api/v1/namespaces/{namespace}/services", service)
    admin.create(f"apis/apps/v1/namespaces/{namespace}/deployments", deployment)
