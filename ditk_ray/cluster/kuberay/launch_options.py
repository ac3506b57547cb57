"""What a Ray cluster on Kubernetes is to be like, checked: see `launch_check`."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from ditk_ray.cluster.kuberay.placement import Placement


@dataclass(frozen=True)
class LaunchedGroup:
    """Workers that are alike. `memory` is in bytes, `replicas` how many there are at first."""

    name: str
    replicas: int
    least: int
    most: int
    cpu: int
    memory: int
    gpu: int = 0
    placement: Placement = field(default_factory=Placement)

    def described(self) -> dict[str, Any]:
        """Return it as sweeps on the cluster are told of it."""
        limits = {"min": self.least, "max": self.most}
        return {
            "name": self.name,
            **limits,
            "cpu": self.cpu,
            "gpu": self.gpu,
            "memory": self.memory,
        }


@dataclass(frozen=True)
class Results:
    """Where results are kept: on a claim that is there already, or on one that is made.

    `size` is one of Kubernetes' quantities; `storage_class` None is the cluster's default.
    """

    existing_claim: str | None = None
    storage_class: str | None = None
    size: str = "100Gi"


@dataclass(frozen=True)
class LaunchOptions:
    """One cluster, or one job with a cluster of its own.

    `mlflow_uri` is a server that is there already. With neither that nor `has_mlflow` sweeps
    keep a store of their own among the results.
    """

    name: str
    namespace: str
    image: str
    groups: tuple[LaunchedGroup, ...]
    ray_version: str
    head_cpu: int
    head_memory: int
    results: Results = field(default_factory=Results)
    has_mlflow: bool = True
    mlflow_uri: str | None = None
    queue: str | None = None
    pull_secret: str | None = None

    @property
    def tracking_uri(self) -> str | None:
        """Where sweeps on the cluster record."""
        return f"http://{self.name}-mlflow:5000" if self.has_mlflow else self.mlflow_uri

    @property
    def results_claim(self) -> str:
        """The claim that the pods mount."""
        return self.results.existing_claim or f"{self.name}-results"

    def numbered(self, count: int) -> tuple[LaunchOptions, ...]:
        """Return the same for several clusters, NAME-0 and so on; for one it keeps its name."""
        if count == 1:
            return (self,)
        return tuple(replace(self, name=f"{self.name}-{number}") for number in range(count))


@dataclass(frozen=True)
class RunOptions:
    """A sweep that runs as a RayJob: its words, how often it is tried again, and its limits."""

    command: tuple[str, ...]
    retries: int = 3
    deadline: int | None = None
    working_dir: str | None = None
