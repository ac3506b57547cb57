"""The objects of a Ray cluster or a RayJob, and what stands around it, as they are sent.

They are made of the YAML of cluster_configs/kuberay, which is in the package and read as data.
"""

from __future__ import annotations

import copy
import json
import shlex
from collections.abc import Mapping
from importlib import resources
from typing import Any

from ditk_ray.kube.objects import Manifest, kube_quantity
from ditk_ray.kube.yaml_text import read_yaml_documents, yaml_text
from ditk_ray.kuberay.options import GPU, Group, Job, Launch
from ditk_ray.kuberay.ray_cluster import QUEUE
from ditk_ray.ray_cluster.nodes import WORKER_GROUPS


def launch_manifests(options: Launch) -> list[Manifest]:
    """Return all that makes up a cluster or a RayJob, in the order in which it is sent.

    What has to be there before the pods comes first, the policy before all, so that none is
    open for a while.
    """
    return [
        *_read("network_policy.yaml", options).values(),
        *_access(options),
        *_results(options),
        *(_mlflow(options) if options.has_mlflow else []),
        _ray_job(options) if isinstance(options, Job) else _ray_cluster(options),
    ]


def _read(file: str, options: Launch) -> dict[str, Manifest]:
    names = {
        "rl": options.name,
        "rl-ray": f"{options.name}-ray",
        "rl-mlflow": f"{options.name}-mlflow",
        "rl-results": options.claim_name,
        "http://rl-mlflow:5000": options.tracking_uri,
        "IMAGE": options.image,
    }
    found = {each["kind"]: _renamed(each, names) for each in read_template(file)}
    for kind, each in found.items():
        each["metadata"]["namespace"] = options.namespace
        # Kueue suspends what is new by itself, and lifts that; a `suspend` of ours would stop a
        # running cluster when it is sent again.
        if options.queue is not None and kind in ("RayCluster", "RayJob"):
            each["metadata"]["labels"][QUEUE] = options.queue
    return found


def read_template(file: str) -> list[Manifest]:
    text = resources.files("ditk_ray.kuberay").joinpath("templates", file).read_text()
    return read_yaml_documents(text)


def _renamed(value: Any, names: Mapping[str, str | None]) -> Any:
    if isinstance(value, dict):
        return {key: _renamed(each, names) for key, each in value.items()}
    if isinstance(value, list):
        return [_renamed(each, names) for each in value]
    return names.get(value, value) if isinstance(value, str) else value


def _access(options: Launch) -> list[Manifest]:
    found = _read("access.yaml", options)
    found["RoleBinding"]["subjects"][0]["namespace"] = options.namespace
    return list(found.values())


def _results(options: Launch) -> list[Manifest]:
    if options.results_claim is not None:
        return []
    claim = _read("results_claim.yaml", options)["PersistentVolumeClaim"]
    # GKE's own class with ReadWriteMany is Filestore's, which gives 1 TiB at least.
    is_filestore = options.cloud == "gke" and options.storage_class is None
    size = options.results_size or (2**40 if is_filestore else 100 * 2**30)
    claim["spec"]["resources"]["requests"]["storage"] = kube_quantity(size)
    if is_filestore or options.storage_class:
        claim["spec"]["storageClassName"] = options.storage_class or "standard-rwx"
    return [claim]


def _mlflow(options: Launch) -> list[Manifest]:
    found = _read("mlflow.yaml", options)
    pod = found["Deployment"]["spec"]["template"]["spec"]
    _use_pull_secret(pod, options)
    # By which names it is reached: a pattern for more would let strangers in. They are those of
    # its Service, and loopback's, whose port `cluster forward` chooses.
    place = f".{options.namespace}"
    services = [f"{options.name}-mlflow{end}" for end in ("", place, f"{place}.svc")]
    services.append(f"{services[-1]}.cluster.local")
    hosts = [f"{service}{port}" for service in services for port in ("", ":5000")]
    known = ",".join([*hosts, "localhost:*", "127.0.0.1:*"])
    pod["containers"][0]["args"][-1] = f"--allowed-hosts={known}"
    return list(found.values())


def _ray_cluster(options: Launch) -> Manifest:
    cluster = _read("ray_cluster.yaml", options)["RayCluster"]
    spec = cluster["spec"]
    spec["rayVersion"] = options.ray_version
    if options.queue is not None:  # Kueue refuses clusters whose size changes
        spec["enableInTreeAutoscaling"] = False
        del spec["autoscalerOptions"]
    container = _fill_pod(spec["headGroupSpec"], options)["containers"][0]
    groups = [_described(group, options) for group in options.groups]
    container["env"][-1] = {"name": WORKER_GROUPS, "value": json.dumps(groups)}
    container["resources"] = _resources(options.head_cpu, options.head_memory)
    (pattern,) = spec["workerGroupSpecs"]
    spec["workerGroupSpecs"] = [_group(pattern, group, options) for group in options.groups]
    return cluster


def _ray_job(options: Job) -> Manifest:
    job = _read("ray_job.yaml", options)["RayJob"]
    spec = job["spec"]
    spec["entrypoint"] = shlex.join(options.entrypoint)
    spec["backoffLimit"] = options.retries
    if options.deadline is not None:
        spec["activeDeadlineSeconds"] = int(options.deadline)
    if options.working_dir is not None:
        spec["runtimeEnvYAML"] = yaml_text({"working_dir": options.working_dir})
    spec["rayClusterSpec"] = _ray_cluster(options)["spec"]
    return job


def _described(group: Group, options: Launch) -> dict[str, Any]:
    _, least, most = group.sizes(is_fixed=options.queue is not None)
    each = {"cpu": group.cpu, "gpu": group.gpu, "memory": group.memory}
    return {"name": group.name, "min": least, "max": most, **each}


def _group(pattern: Manifest, group: Group, options: Launch) -> Manifest:
    replicas, least, most = group.sizes(is_fixed=options.queue is not None)
    made = copy.deepcopy(pattern)
    made |= {"groupName": group.name, "replicas": replicas}
    made |= {"minReplicas": least, "maxReplicas": most}
    pod = _fill_pod(made, options)
    pod["containers"][0]["resources"] = _resources(group.cpu, group.memory, group.gpu)
    pod.update(group.placement(options.cloud))
    return made


def _fill_pod(group: Manifest, options: Launch) -> dict[str, Any]:
    pod: dict[str, Any] = group["template"]["spec"]
    (container,) = pod["containers"]
    container["env"] = [each for each in container["env"] if each["value"] is not None]
    _use_pull_secret(pod, options)
    return pod


def _use_pull_secret(pod: dict[str, Any], options: Launch) -> None:
    if options.image_pull_secret is not None:
        pod["imagePullSecrets"] = [{"name": options.image_pull_secret}]


def _resources(cpu: int, memory: int, gpu: int = 0) -> dict[str, dict[str, str]]:
    """Return requests that are the limits: Ray takes the limits for what a node has."""
    amounts = {"cpu": str(cpu), "memory": kube_quantity(memory)}
    if gpu:
        amounts[GPU] = str(gpu)
    return {"requests": dict(amounts), "limits": dict(amounts)}
