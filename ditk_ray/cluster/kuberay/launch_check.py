"""Checking what a user asks of a Ray cluster: whole, and before anything is sent."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from ditk_ray.cluster.jobs.cluster_file import is_address
from ditk_ray.cluster.kuberay import gke
from ditk_ray.cluster.kuberay.group_check import GroupRequest, check_groups
from ditk_ray.cluster.kuberay.launch_options import LaunchOptions, Results
from ditk_ray.cluster.kuberay.object_names import (
    MAX_CLUSTER_NAME,
    is_label_value,
    is_object_name,
    name_problem,
)
from ditk_ray.cluster.kuberay.placement import GENERIC, GKE
from ditk_ray.cluster.kuberay.request_values import RequestValues
from ditk_ray.errors import BadConfigError, Problem

_LEAST_RAY = (2, 52)
_MOST_QUEUED_GROUPS = 7
"""Kueue counts eight sets of pods at most, of which one is the head."""
_MOST_CLUSTERS = 50


@dataclass(frozen=True)
class LaunchRequest:
    """What a user says, as texts; None is what is not said."""

    name: str | None
    image: str | None
    namespace: str
    ray_version: str
    cloud: str = GENERIC
    groups: Sequence[GroupRequest] = ()
    num_clusters: int = 1
    head_cpu: str = "2"
    head_memory: str = "8G"
    queue: str | None = None
    storage_class: str | None = None
    results_claim: str | None = None
    results_size: str | None = None
    has_mlflow: bool = True
    mlflow_uri: str | None = None
    pull_secret: str | None = None
    most_name: int = MAX_CLUSTER_NAME


def check_launch(request: LaunchRequest) -> tuple[LaunchOptions, ...]:
    """Return the clusters that were asked for; raises BadConfigError with all that is wrong."""
    values = RequestValues()
    problems = [*_names(request), *_image(request), *_ray(request), *_objects(request)]
    problems += [*_results(request), *_mlflow(request), *_queue(request)]
    groups = check_groups(request.groups, request.cloud, request.queue is not None, values)
    head_cpu = values.count("--head_cpu", request.head_cpu, 1)
    head_memory = values.memory("--head_memory", request.head_memory)
    results = _chosen_results(request, values)
    problems += values.problems
    if problems:
        raise BadConfigError(problems)
    whole = LaunchOptions(
        name=str(request.name),
        namespace=request.namespace,
        image=str(request.image),
        groups=groups,
        ray_version=request.ray_version,
        head_cpu=head_cpu,
        head_memory=head_memory,
        results=results,
        has_mlflow=request.has_mlflow and not request.mlflow_uri,
        mlflow_uri=request.mlflow_uri,
        queue=request.queue,
        pull_secret=request.pull_secret,
    )
    return whole.numbered(request.num_clusters)


def _names(request: LaunchRequest) -> list[Problem]:
    if not request.name:
        return [Problem("--name", "is missing", "name the cluster, such as --name rl")]
    if not 1 <= request.num_clusters <= _MOST_CLUSTERS:
        what = f"is {request.num_clusters}; it has to be from 1 to {_MOST_CLUSTERS}"
        return [Problem("--num_clusters", what)]
    last = request.name
    if request.num_clusters > 1:
        last = f"{request.name}-{request.num_clusters - 1}"
    wrong = name_problem(last, request.most_name)
    return [Problem(f"--name {last}", wrong)] if wrong else []


def _image(request: LaunchRequest) -> list[Problem]:
    if not request.image:
        hint = "build one from cluster_configs/Dockerfile, and push it where the nodes can pull it"
        return [Problem("--image", "is missing", hint)]
    if not re.fullmatch(r"[\w./:@-]+", request.image):
        return [Problem(f"--image {request.image}", "is no image, which is like HOST/NAME:TAG")]
    return []


def _ray(request: LaunchRequest) -> list[Problem]:
    found = re.fullmatch(r"(\d+)\.(\d+)(\.\w+)*", request.ray_version)
    where = f"--ray_version {request.ray_version}"
    if found is None:
        return [Problem(where, "is no version, which is like 2.60.0")]
    if (int(found[1]), int(found[2])) < _LEAST_RAY:
        hint = "older ones know no tokens: whoever reached the dashboard would run code"
        return [Problem(where, "is too old; it has to be 2.52.0 or newer", hint)]
    return []


def _objects(request: LaunchRequest) -> list[Problem]:
    named = {
        "--namespace": request.namespace,
        "--storage_class": request.storage_class,
        "--results_claim": request.results_claim,
        "--image_pull_secret": request.pull_secret,
    }
    return [
        Problem(f"{flag} {name}", "is no name of an object on Kubernetes")
        for flag, name in named.items()
        if name is not None and not is_object_name(name)
    ]


def _results(request: LaunchRequest) -> list[Problem]:
    if request.results_claim is None:
        return []
    made = {"--storage_class": request.storage_class, "--results_size": request.results_size}
    what = "is of a claim that is made, and does not go together with --results_claim"
    return [Problem(flag, what) for flag, value in made.items() if value is not None]


def _chosen_results(request: LaunchRequest, values: RequestValues) -> Results:
    if request.results_claim is not None:
        return Results(existing_claim=request.results_claim)
    default = Results()
    if request.cloud == GKE and request.storage_class is None:
        default = Results(storage_class=gke.RESULTS_CLASS, size=gke.RESULTS_SIZE)
    if request.results_size is None:
        return Results(None, request.storage_class or default.storage_class, default.size)
    size = values.quantity("--results_size", request.results_size)
    return Results(None, request.storage_class or default.storage_class, size)


def _mlflow(request: LaunchRequest) -> list[Problem]:
    if request.mlflow_uri is None:
        return []
    if not request.has_mlflow:
        return [Problem("--mlflow_uri", "does not go together with --no_mlflow")]
    if not is_address(request.mlflow_uri):
        what = "is no address of a server that the pods could reach (http://... or https://...)"
        return [Problem(f"--mlflow_uri {request.mlflow_uri}", what)]
    if "@" in urlsplit(request.mlflow_uri).netloc:
        what = "has a user or a password in it, which everybody reads who reads the manifests"
        hint = (
            "write it without: jobs have them from `ditk-ray submit --env MLFLOW_TRACKING_PASSWORD`"
        )
        return [Problem("--mlflow_uri", what, hint)]
    return []


def _queue(request: LaunchRequest) -> list[Problem]:
    if request.queue is None:
        return []
    problems = []
    if not request.queue or not is_label_value(request.queue):
        problems.append(Problem(f"--queue {request.queue}", "is no name of a LocalQueue of Kueue"))
    if len(request.groups) > _MOST_QUEUED_GROUPS:
        what = f"has {len(request.groups)} groups; Kueue takes {_MOST_QUEUED_GROUPS}"
        problems.append(Problem("--queue", what))
    return problems
