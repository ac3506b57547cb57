"""How a RayJob stands, from its status."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from ditk_ray.cluster.kuberay.troubles import CHECK_HINT, PATIENCE_WITH_OPERATOR
from ditk_ray.kube.ages import age_of, show_age
from ditk_ray.kube.objects import Manifest

_ENDED_WELL = "Complete"
_ENDED = (_ENDED_WELL, "Failed", "ValidationFailed")
_JOB_FAILED = ("FAILED", "STOPPED")


@dataclass(frozen=True)
class JobHealth:
    """A RayJob: `state` is KubeRay's, `job_status` Ray's, `cluster` where it runs now.

    `is_over` says that nothing becomes of it any more, `is_ok` that nothing has gone wrong.
    """

    name: str
    namespace: str
    state: str
    job_status: str
    cluster: str
    failed: int
    age: float
    is_over: bool
    is_ok: bool
    why: str


def job_health(job: Manifest, now: datetime) -> JobHealth:
    """Judge a RayJob by its status."""
    status = job.get("status") or {}
    state = str(status.get("jobDeploymentStatus") or "")
    ended_badly = state in _ENDED[1:] or status.get("jobStatus") in _JOB_FAILED
    age = age_of(job, now)
    return JobHealth(
        name=job["metadata"]["name"],
        namespace=job["metadata"]["namespace"],
        state=state or "New",
        job_status=str(status.get("jobStatus") or ""),
        cluster=str(status.get("rayClusterName") or ""),
        failed=int(status.get("failed") or 0),
        age=age,
        is_over=state in _ENDED,
        is_ok=not ended_badly,
        why=_why(job, state, age),
    )


def _why(job: Manifest, state: str, age: float) -> str:
    status = job.get("status") or {}
    if job["spec"].get("suspend") and state not in _ENDED:
        return "it is suspended"
    if not state and age >= PATIENCE_WITH_OPERATOR:
        return f"nothing has looked at it in {show_age(age)}: {CHECK_HINT}"
    if state == _ENDED_WELL and status.get("jobStatus") not in _JOB_FAILED:
        return ""
    parts = [str(status.get(key) or "").strip() for key in ("reason", "message")]
    return " ".join(": ".join(filter(None, parts)).split())
