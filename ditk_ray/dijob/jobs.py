"""Reading a DIJob: whose it is by its labels, its phase, its tasks, containers and pods."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ditk_ray.errors import BadConfigError, Problem
from ditk_ray.kube.objects import MANAGED_BY, MANAGER, Manifest
from ditk_ray.util.suggest import did_you_mean

SWEEP = "ditk-ray/sweep"
TRIAL = "ditk-ray/trial"
ATTEMPT = "ditk-ray/attempt"
SEED = "ditk-ray/seed"

CREATION = "ditk-ray/creation"
"""On a job that belongs to no sweep: which request made it."""

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
SUCCEEDED = "Succeeded"
FAILED = "Failed"
RUNNING = "Running"


def sweep_key(name: str, identity: str) -> str:
    """Return the value of the label `SWEEP`: readable, and no other sweep's.

    `identity` is a text that permanently identifies this sweep, such as an id that
    was drawn once.
    """
    digits = hashlib.sha256(identity.encode()).hexdigest()[:_HEX]
    return f"{slug_of(name)}-{digits}"


def slug_of(name: str) -> str:
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower())[: MAX_NAME - _HEX - 1].strip("-")
    return slug or "sweep"


def heartbeat_name(key: str) -> str:
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
        digits = self.sweep.rpartition("-")[2]
        number = self.trial.rpartition("_")[2]
        end = f"-s{self.seed}" if self.has_several_seeds else ""
        return f"{prefix}-{digits}-{number}-{self.attempt}{end}"

    @property
    def labels(self) -> dict[str, str]:
        return {
            MANAGED_BY: MANAGER,
            SWEEP: self.sweep,
            TRIAL: self.trial,
            ATTEMPT: str(self.attempt),
            SEED: str(self.seed),
        }

    @property
    def environment(self) -> dict[str, str]:
        own = [(key, value) for key, value in self.labels.items() if key != MANAGED_BY]
        return {f"DITK_RAY_{key.rpartition('/')[2].upper()}": value for key, value in own}


def spec_of(job: Manifest) -> dict[str, Any]:
    return job.get("spec") or {}  # one that others made may have none


def phase_of(job: Manifest) -> str:
    """Return the phase; a new job has none for a moment, which is the empty text."""
    return str((job.get("status") or {}).get("phase") or "")


def is_finished(job: Manifest) -> bool:
    return phase_of(job) in (SUCCEEDED, FAILED)


def reason_of(job: Manifest) -> str:
    for condition in (job.get("status") or {}).get("conditions") or []:
        if condition.get("type") == phase_of(job) and condition.get("status") == "True":
            return ": ".join(filter(None, (condition.get("reason"), condition.get("message"))))
    return ""


def pod_names(job: Manifest, wanted: str | None = None) -> list[str]:
    """Return the names that the operator gives to the pods of a job, or of one of its tasks."""
    return [
        f"{job['metadata']['name']}-{task_name(task)}-{index}"
        for task, _ in each_task(spec_of(job))
        for index in range(task.get("replicas", 1))
        if wanted in (None, task_name(task))
    ]


def pod_labels(name: str, task: str | None = None) -> str:
    """Return by which labels the pods of a job, or of one of its tasks, are found."""
    return f"{POD_JOB}={name}" + (f",{POD_TASK}={task}" if task else "")


def line_prefix(pod: Manifest, pods: Sequence[str]) -> str:
    """Return the prefix that distinguishes a pod's lines from those of a job's other pods."""
    labels = pod["metadata"].get("labels") or {}
    name = str(pod["metadata"]["name"]).removeprefix(f"{labels.get(POD_JOB)}-")
    return f"[{name}] " if len(pods) > 1 else ""


def each_task(spec: Mapping[str, Any]) -> Iterator[tuple[dict[str, Any], str]]:
    for number, task in enumerate(spec.get("tasks") or []):
        yield task, f"spec.tasks[{number}]"


def task_name(task: Mapping[str, Any]) -> str:
    return str(task.get("name") or task.get("type") or "")


def containers_of(task: Mapping[str, Any], kind: str = "containers") -> list[dict[str, Any]]:
    pod = (task.get("template") or {}).get("spec") or {}
    return list(pod.get(kind) or [])


def each_container(
    spec: Mapping[str, Any],
) -> Iterator[tuple[dict[str, Any], str, dict[str, Any]]]:
    """Yield a task, a container's path and the container, for all, those that run first too."""
    for task, where in each_task(spec):
        for kind in ("containers", "initContainers"):
            for number, container in enumerate(containers_of(task, kind)):
                yield task, f"{where}.template.spec.{kind}[{number}]", container


def check_task(job: Manifest, task: str | None) -> None:
    known = [task_name(each) for each, _ in each_task(spec_of(job))]
    if task is not None and task not in known:
        what = f"{job['metadata']['name']} has no task {task!r}; {did_you_mean(task, known)}"
        raise BadConfigError(Problem("--task", what))
