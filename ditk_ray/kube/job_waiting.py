"""Waiting for what becomes of a job, and saying why it does not."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from ditk_ray.errors import KubeError
from ditk_ray.kube.connection import Kube
from ditk_ray.kube.dijobs import FAILED, RUNNING, SUCCEEDED, phase_of, pod_names, reason_of
from ditk_ray.kube.live_job import LiveJob
from ditk_ray.kube.objects import Manifest
from ditk_ray.kube.pod_reasons import first_death, warnings_about, why_dead, why_waiting

_LOOK_SECONDS = 1.0


class Goal(StrEnum):
    """What a job can be waited for. One that succeeded has been running."""

    SUCCEEDED = "succeeded"
    FINISHED = "finished"
    RUNNING = "running"
    DELETED = "deleted"


@dataclass(frozen=True)
class Waited:
    """How waiting ended: whether the goal was reached, and what there is to say."""

    is_reached: bool
    text: str


_REACHED = {
    Goal.SUCCEEDED: {SUCCEEDED},
    Goal.FINISHED: {SUCCEEDED, FAILED},
    Goal.RUNNING: {RUNNING, SUCCEEDED},
    Goal.DELETED: set[str](),
}


def wait_for_job(
    kube: Kube, name: str, goal: Goal, seconds: float, tell: Callable[[str], None]
) -> Waited:
    """Wait until a job reaches its goal, cannot reach it any more, or the time is over.

    `tell` is called with each phase, and with what keeps the job from starting. Raises
    KubeNotFoundError for a job that is not there, unless that is the goal.
    """
    end = time.monotonic() + seconds
    told: tuple[str, str] = ("", "")
    with LiveJob(kube, name) as live:
        if not live.is_there and goal is Goal.DELETED:
            return Waited(True, "deleted")
        while True:
            news = _news(live)
            for text in [new for new, old in zip(news, told, strict=True) if new not in (old, "")]:
                tell(text)
            told = news
            waited = _outcome(live, goal)
            if waited is not None:
                return waited
            left = end - time.monotonic()
            if left <= 0:
                return Waited(False, _in_vain(kube, live, seconds))
            live.wait(min(left, _LOOK_SECONDS))


def why_hanging(kube: Kube, job: Manifest, pods: list[Manifest]) -> str | None:
    """Return what keeps a job from starting: from its pods, or else from the events."""
    for pod in pods:
        found = why_waiting(pod)
        if found:
            return found
    try:
        warnings = kube.events.list(fields="type=Warning")
    except KubeError:
        return None  # a reason that may not be read must not hide what is known
    about = warnings_about(warnings, [job["metadata"]["name"], *pod_names(job)])
    return next(iter(about), None)


def why_failed(job: Manifest, pods: list[Manifest]) -> str:
    """Return what a job failed of: its pods' end, and what the operator says."""
    deaths = filter(None, map(why_dead, pods))
    death = first_death(deaths)
    texts = [death.text if death else "", reason_of(job)]
    return "; ".join(filter(None, texts)) or "no reason is given"


def _news(live: LiveJob) -> tuple[str, str]:
    """Return the phase, and what keeps the job from starting."""
    phase = phase_of(live.job)
    if live.is_over or phase == RUNNING:
        return phase, ""
    reasons = (why_waiting(pod) for pod in live.pods if not live.is_gone(pod))
    return phase, next(filter(None, reasons), "")


def _outcome(live: LiveJob, goal: Goal) -> Waited | None:
    phase = phase_of(live.job)
    if phase in _REACHED[goal] and live.is_there:
        return Waited(True, phase.lower())
    if not live.is_there:
        return Waited(goal is Goal.DELETED, "deleted")
    if live.is_over and goal is not Goal.DELETED:
        return Waited(False, f"failed: {why_failed(live.job, live.pods)}")
    return None


def _in_vain(kube: Kube, live: LiveJob, seconds: float) -> str:
    phase = phase_of(live.job) or "without a phase (is the operator of DI-orchestrator running?)"
    text = f"is {phase} after {seconds:g} seconds"
    there = [pod for pod in live.pods if not live.is_gone(pod)]
    is_puzzling = not live.is_over and phase != RUNNING
    why = why_hanging(kube, live.job, there) if is_puzzling else None
    return f"{text}: {why}" if why else text
