"""What is said to cost money, from the very objects that cost it."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from ditk_ray.cluster.kuberay.standing_costs import launch_costs, pod_size, present_size
from tests.cluster.launches import GOLDEN


def golden(name: str) -> list[Any]:
    return list(yaml.safe_load_all((GOLDEN / f"{name}.yaml").read_text()))


def test_a_launch_is_told_with_all_that_it_makes():
    assert launch_costs(golden("gke")) == [
        "its head: 4 CPU, 12Gi",
        "0 to 8 workers of group 'workers', 8 of them now: 8 CPU, 1 GPU, 32Gi each "
        "(those without work leave after 5 minutes)",
        "its MLflow server: 0.5 CPU, 2Gi",
        "storage, which stays when the cluster is deleted: rl-mlflow, 20Gi; rl-results, 1Ti",
    ]


def test_a_job_costs_what_its_cluster_costs_and_a_fixed_size_is_told_as_one():
    assert launch_costs(golden("job"))[:2] == [
        "its head: 2 CPU, 8Gi",
        "1 workers of group 'workers': 4 CPU, 16Gi each",
    ]


def test_storage_that_was_there_before_is_not_told():
    assert not any("storage" in line for line in launch_costs(golden("groups")))


def test_the_present_size_is_of_the_head_and_the_workers_that_are_wanted():
    (cluster,) = [each for each in golden("gke") if each["kind"] == "RayCluster"]
    assert present_size(cluster) == "68 CPU, 8 GPU"
    cluster["spec"]["workerGroupSpecs"][0]["replicas"] = 0
    assert present_size(cluster) == "4 CPU"
    cluster["spec"]["headGroupSpec"]["template"]["spec"]["containers"][0]["resources"] = {}
    assert present_size(cluster) == ""


@pytest.mark.parametrize(
    ("resources", "text"),
    [
        ({"limits": {"cpu": "1500m", "memory": "1Gi"}}, "1.5 CPU, 1Gi"),
        ({"requests": {"cpu": 1}, "limits": {"cpu": 4, "nvidia.com/gpu": "2"}}, "1 CPU, 2 GPU"),
        ({"requests": {"cpu": "some"}}, "CPUs that nobody counts"),
        ({}, "CPUs that nobody counts"),
    ],
)
def test_a_pod_is_as_large_as_it_asks_for(resources, text):
    assert str(pod_size({"spec": {"containers": [{"resources": resources}]}})) == text
