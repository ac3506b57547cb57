"""Reading a DIJob: its phase, the reason for it, and the pods that it has."""

from __future__ import annotations

from typing import Any

from ditk_ray.kube.objects import Manifest

SUCCEEDED = "Succeeded"
FAILED = "Failed"
RUNNING = "Running"


def spec_of(job: Manifest) -> dict[str, Any]:
    """Return the spec; a job that others made may have none."""
    return job.get("spec") or {}


def phase_of(job: Manifest) -> str:
    """Return the phase; a new job has none for a moment, which is the empty text."""
    return str((job.get("status") or {}).get("phase") or "")


def is_finished(job: Manifest) -> bool:
    """Tell whether the operator is done with the job."""
    return phase_of(job) in (SUCCEEDED, FAILED)


def reason_of(job: Manifest) -> str:
    """Return what the operator says about the phase that the job is in."""
    phase = phase_of(job)
    for condition in (job.get("status") or {}).get("conditions") or []:
        if condition.get("type") == phase and condition.get("status") == "True":
            parts = (condition.get("reason"), condition.get("message"))
            return ": ".join(str(part) for part in parts if part)
    return ""


def pod_names(job: Manifest) -> list[str]:
    """Return the names that the operator gives to the job's pods."""
    name, names = job["metadata"]["name"], []
    for task in spec_of(job).get("tasks") or []:
        title = task.get("name") or task.get("type") or ""
        names += [f"{name}-{title}-{index}" for index in range(task.get("replicas", 1))]
    return names
