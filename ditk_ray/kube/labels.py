"""How objects in Kubernetes are known to be ours, and which sweep and trial they are of."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

SWEEP = "ditk-ray/sweep"
TRIAL = "ditk-ray/trial"
ATTEMPT = "ditk-ray/attempt"
SEED = "ditk-ray/seed"
CLUSTER = "ditk-ray/cluster"
"""On all that makes up a Ray cluster of ours: the cluster's name."""
MANAGED_BY = "app.kubernetes.io/managed-by"
MANAGER = "ditk-ray"

CREATION = "ditk-ray/creation"
"""On a job that was made by itself: which request made it, so that it knows its own."""

HEARTBEAT = "ditk-ray/heartbeat"
"""On the ConfigMap that a living sweep has, with the value `"true"`."""

ALIVE_AT = "ditk-ray/alive-at"
"""The annotation of that ConfigMap which says when the sweep was last seen alive."""

POD_JOB = "diengine/job"
"""The operator's label on a pod: the name of its DIJob. Ours do not reach the pods."""

POD_OPERATOR = "diengine/operator"
POD_OPERATOR_NAME = "di-operator"
POD_TASK = "diengine/task-name"

MAX_NAME = 63
"""The most characters of a label's value, a pod's host name and a Service's name."""

_HEX = 6


def sweep_key(name: str, identity: str) -> str:
    """Return the value of the label `SWEEP`: readable, and no other sweep's.

    `identity` is a text that this sweep has for good and no other has, such as an id that
    was drawn once.
    """
    digits = hashlib.sha256(identity.encode()).hexdigest()[:_HEX]
    return f"{slug_of(name)}-{digits}"


def slug_of(name: str) -> str:
    """Return what the key of a sweep of this name begins with."""
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower())[: MAX_NAME - _HEX - 1].strip("-")
    return slug or "sweep"


def heartbeat_name(key: str) -> str:
    """Return the name of the ConfigMap that says that a sweep is alive."""
    return f"ditk-ray-{key}"


@dataclass(frozen=True)
class JobIdentity:
    """Which attempt, of which trial of which sweep, on which of its seeds, a DIJob is.

    `sweep` is a `sweep_key`, and `trial` a name such as `trial_00003`.
    """

    sweep: str
    trial: str
    attempt: int = 0
    seed: int = 0
    has_several_seeds: bool = False

    def job_name(self, prefix: str) -> str:
        """Return the DIJob's name, which no other attempt has."""
        digits = self.sweep.rpartition("-")[2]
        number = self.trial.rpartition("_")[2]
        end = f"-s{self.seed}" if self.has_several_seeds else ""
        return f"{prefix}-{digits}-{number}-{self.attempt}{end}"

    @property
    def labels(self) -> dict[str, str]:
        """The labels of the DIJob and of its ConfigMap."""
        return {
            MANAGED_BY: MANAGER,
            SWEEP: self.sweep,
            TRIAL: self.trial,
            ATTEMPT: str(self.attempt),
            SEED: str(self.seed),
        }

    @property
    def environment(self) -> dict[str, str]:
        """What the containers are told of it."""
        return {
            "DITK_RAY_SWEEP": self.sweep,
            "DITK_RAY_TRIAL": self.trial,
            "DITK_RAY_ATTEMPT": str(self.attempt),
            "DITK_RAY_SEED": str(self.seed),
        }
