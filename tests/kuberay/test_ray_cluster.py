"""What is said to cost money, from the very objects that cost it."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from ditk_ray.kuberay.ray_cluster import RayCluster, costs_of
from tests.kuberay.launches import GOLDEN


def golden(name: str) -> list[Any]:
    return list(yaml.safe_load_all((GOLDEN / f"{name}.yaml").read_text()))


def test_a_launch_is_told_with_all_that_it_makes():
    assert costs_of(golden("gke")) == (
        "68 CPU, 8 GPU (head, 8 of at most 8 workers), an MLflow server, storage, which stays when "
        "it is deleted: rl-mlflow (20Gi), rl-results (1Ti)"
    )


def test_a_job_costs_what_its_cluster_costs_and_a_fixed_size_is_told_as_one():
    assert costs_of(golden("job")).startswith("6 CPU (head, 1 workers), an MLflow server")


def test_storage_that_was_there_before_is_not_told():
    both = golden("groups")
    assert costs_of(both[: len(both) // 2]) == "34 CPU, 2 GPU (head, 3 of at most 21 workers)"


def test_the_present_size_is_of_the_head_and_the_workers_that_are_wanted():
    (cluster,) = [each for each in golden("gke") if each["kind"] == "RayCluster"]
    assert RayCluster(cluster).size == "68 CPU, 8 GPU"
    cluster["spec"]["workerGroupSpecs"][0]["replicas"] = 0
    assert RayCluster(cluster).size == "4 CPU"
    cluster["spec"]["headGroupSpec"]["template"]["spec"]["containers"][0]["resources"] = {}
    assert RayCluster(cluster).size == ""


@pytest.mark.parametrize(
    ("resources", "text"),
    [
        ({"limits": {"cpu": "1500m", "memory": "1Gi"}}, "1.5 CPU"),
        ({"requests": {"cpu": 1}, "limits": {"cpu": 4, "nvidia.com/gpu": "2"}}, "1 CPU, 2 GPU"),
        ({"requests": {"cpu": "some"}}, ""),
        ({}, ""),
    ],
)
def test_a_pod_is_as_large_as_it_asks_for(resources, text):
    template = {"spec": {"containers": [{"resources": resources}]}}
    assert RayCluster({"spec": {"headGroupSpec": {"template": template}}}).size == text
