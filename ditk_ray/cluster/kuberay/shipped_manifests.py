"""The YAML of cluster_configs/kuberay, which is in the package and is read as data."""

from __future__ import annotations

from importlib import resources
from typing import Any

from ditk_ray.cluster.kuberay.launch_options import LaunchOptions
from ditk_ray.kube.labels import CLUSTER, MANAGED_BY, MANAGER
from ditk_ray.kube.objects import Manifest
from ditk_ray.kube.yaml_text import read_yaml_documents

_FOLDER = "manifests"


def read_manifests(file: str) -> dict[str, Manifest]:
    """Return the objects of one of the files, new ones with each call, by their kinds."""
    folder = resources.files("ditk_ray.cluster.kuberay").joinpath(_FOLDER)
    documents = read_yaml_documents(folder.joinpath(file).read_text())
    return {str(document["kind"]): document for document in documents}


def named(manifest: Manifest, name: str, options: LaunchOptions) -> Manifest:
    """Give an object its name, its namespace and the labels by which it is known as ours."""
    about = manifest["metadata"]
    about["name"] = name
    about["namespace"] = options.namespace
    about["labels"].update(labels_of(options.name))
    return manifest


def labels_of(cluster: str) -> dict[str, str]:
    """Return the labels of all that makes up a cluster."""
    return {MANAGED_BY: MANAGER, CLUSTER: cluster}


def set_variable(container: dict[str, Any], name: str, value: str | None) -> None:
    """Set a variable of a container's environment; None takes it out."""
    kept = [each for each in container["env"] if each["name"] != name]
    container["env"] = kept if value is None else [*kept, {"name": name, "value": value}]
