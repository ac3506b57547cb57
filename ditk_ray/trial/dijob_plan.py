"""What all trials of a sweep have in common that are DIJobs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ditk_ray.config.resources import TrialResources
from ditk_ray.kube.connection import KubeSettings
from ditk_ray.kube.job_watch import Kept
from ditk_ray.kube.template import DijobTemplate


@dataclass(frozen=True)
class DijobPlan:
    """From which template jobs are made, where, and which of them stay when they have ended."""

    template: DijobTemplate
    sweep_key: str
    """What all of the sweep's objects in the cluster are labelled with."""
    cluster: KubeSettings
    """Where the jobs are, settled for good."""
    resources: Mapping[str, TrialResources]
    """By task; `*` counts for those that are not named."""
    office: str
    """The name of the Ray actor that speaks to Kubernetes for all trials."""
    keep: Kept = "none"

    @property
    def namespace(self) -> str:
        """Where the jobs are within the cluster."""
        return self.cluster.namespace or "default"
