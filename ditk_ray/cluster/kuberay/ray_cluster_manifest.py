"""The RayCluster of a launch."""

from __future__ import annotations

import copy
import json
from typing import Any

from ditk_ray.cluster.kuberay.launch_options import LaunchedGroup, LaunchOptions
from ditk_ray.cluster.kuberay.placement import GPU
from ditk_ray.cluster.kuberay.ray_cluster import QUEUE
from ditk_ray.cluster.kuberay.request_values import quantity_of
from ditk_ray.cluster.kuberay.shipped_manifests import (
    labels_of,
    named,
    read_manifests,
    set_variable,
)
from ditk_ray.cluster.worker_groups import WORKER_GROUPS
from ditk_ray.kube.objects import Manifest

_FILE = "ray_cluster.yaml"


def ray_cluster(options: LaunchOptions) -> Manifest:
    """Return the RayCluster as it is sent."""
    cluster = named(read_manifests(_FILE)["RayCluster"], options.name, options)
    put_into_queue(cluster, options.queue)
    cluster["spec"] = cluster_spec(options)
    return cluster


def put_into_queue(manifest: Manifest, queue: str | None) -> None:
    """Have Kueue decide when it starts.

    Kueue suspends what is new by itself, and lifts that; a `suspend` of ours would stop a
    running cluster when it is sent again.
    """
    if queue is not None:
        manifest["metadata"]["labels"][QUEUE] = queue


def cluster_spec(options: LaunchOptions) -> dict[str, Any]:
    """Return the `spec` of a RayCluster, which a RayJob has, too."""
    spec: dict[str, Any] = read_manifests(_FILE)["RayCluster"]["spec"]
    spec["rayVersion"] = options.ray_version
    if options.queue is not None:  # Kueue refuses clusters whose size changes
        spec["enableInTreeAutoscaling"] = False
        del spec["autoscalerOptions"]
    _fill_head(spec["headGroupSpec"]["template"], options)
    (pattern,) = spec["workerGroupSpecs"]
    spec["workerGroupSpecs"] = [_group(pattern, group, options) for group in options.groups]
    return spec


def _fill_head(template: Manifest, options: LaunchOptions) -> None:
    pod = _fill_pod(template, options)
    pod["serviceAccountName"] = f"{options.name}-ray"
    (container,) = pod["containers"]
    container["resources"] = _resources(options.head_cpu, options.head_memory)
    groups = json.dumps([group.described() for group in options.groups])
    set_variable(container, WORKER_GROUPS, groups)


def _group(pattern: Manifest, group: LaunchedGroup, options: LaunchOptions) -> Manifest:
    made = copy.deepcopy(pattern)
    made["groupName"] = group.name
    made["replicas"] = group.replicas
    made["minReplicas"] = group.least
    made["maxReplicas"] = group.most
    pod = _fill_pod(made["template"], options)
    pod["containers"][0]["resources"] = _resources(group.cpu, group.memory, group.gpu)
    group.placement.put_into(pod)
    return made


def _fill_pod(template: Manifest, options: LaunchOptions) -> dict[str, Any]:
    """Fill in what head and workers have in common, and return the pod's spec."""
    template["metadata"]["labels"].update(labels_of(options.name))
    pod: dict[str, Any] = template["spec"]
    (container,) = pod["containers"]
    container["image"] = options.image
    set_variable(container, "MLFLOW_TRACKING_URI", options.tracking_uri)
    (volume,) = pod["volumes"]
    volume["persistentVolumeClaim"]["claimName"] = options.results_claim
    use_pull_secret(pod, options)
    return pod


def use_pull_secret(pod: dict[str, Any], options: LaunchOptions) -> None:
    """Have the image pulled with a Secret, if one is named."""
    if options.pull_secret is not None:
        pod["imagePullSecrets"] = [{"name": options.pull_secret}]


def _resources(cpu: int, memory: int, gpu: int = 0) -> dict[str, dict[str, str]]:
    """Return requests that are the limits: Ray takes the limits for what a node has."""
    amounts = {"cpu": str(cpu), "memory": quantity_of(memory)}
    if gpu:
        amounts[GPU] = str(gpu)
    return {"requests": dict(amounts), "limits": dict(amounts)}
