"""What commands show of DIJobs: their state, what becomes of one while it runs, and its logs.

A job that is followed is looked at once a second. An API server that does not answer is asked
again.
"""

from __future__ import annotations

import contextlib
import math
import queue
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from datetime import datetime
from typing import Any, Literal

from ditk_ray.dijob import jobs
from ditk_ray.dijob.tracker import JobEvent, JobTracker, Phase
from ditk_ray.errors import DitkRayError, KubeError, KubeNotFoundError, KubeUnreachableError
from ditk_ray.execution.executor import Ended, Waiting
from ditk_ray.kube import pods as pod_state
from ditk_ray.kube.connection import Kube
from ditk_ray.kube.objects import Manifest, age_of, moment, seconds_since
from ditk_ray.kube.pod_logs import FollowedPod
from ditk_ray.kube.watch import Change

_LOOK_SECONDS = 1.0
_SILENCE_SECONDS = 30.0
_WAITING_LINES = 1000
"""So many lines are read ahead of what is printed."""


def job_row(job: Manifest, now: datetime) -> dict[str, Any]:
    """Return what is shown of a job among others; one of no sweep has an empty `sweep`."""
    status = job.get("status") or {}
    labels = job["metadata"].get("labels") or {}
    return {
        "name": job["metadata"]["name"],
        "phase": jobs.phase_of(job),
        "ready": status.get("readyReplicas") or 0,
        "replicas": status.get("replicas") or 0,
        "restarts": status.get("restarts") or 0,
        "reschedules": status.get("reschedules") or 0,
        "age": age_of(job, now),
        "sweep": labels.get(jobs.SWEEP, ""),
        "trial": labels.get(jobs.TRIAL, ""),
    }


def job_details(kube: Kube, name: str, now: datetime) -> dict[str, Any]:
    """Look at a job, its pods and its events; return what `describe --format json` prints.

    Ages are in seconds; `events` has the newest last. Raises KubeError.
    """
    job = kube.dijobs.get(name)
    pods = kube.pods.list(jobs.pod_labels(name))
    events = _events_about(job, kube.events.list())
    tracker = JobTracker(kube.pods, name)
    tracker.begin(job)
    tracker.take_pods(pods)
    tracker.take_warnings([each for each in events if each.get("type") == "Warning"])
    status = job.get("status") or {}
    counted = status.get("taskStatus") or {}
    conditions = [_condition(each) for each in status.get("conditions") or []]
    return {
        **job_row(job, now),
        "namespace": kube.namespace,
        "created": str(job["metadata"].get("creationTimestamp", "")),
        "why": tracker.why,
        "conditions": sorted(conditions, key=lambda each: each["since"]),
        "tasks": [_task(each, counted) for each, _ in jobs.each_task(jobs.spec_of(job))],
        "pods": [_pod(each, now) for each in pods],
        "events": [_event(each, now) for each in sorted(events, key=_seen_at)],
    }


def _condition(given: dict[str, Any]) -> dict[str, str]:
    since = given.get("lastTransitionTime") or given.get("lastUpdateTime") or ""
    return {
        "phase": str(given.get("type", "")),
        "since": since,
        "message": pod_state.sentence(given, ""),
    }


def _task(task: dict[str, Any], counted: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": jobs.task_name(task),
        "type": str(task.get("type", "")),
        "replicas": int(task.get("replicas", 1)),
        "pods": dict(counted.get(jobs.task_name(task)) or {}),
    }


def _pod(pod: Manifest, now: datetime) -> dict[str, Any]:
    status, metadata = pod.get("status") or {}, pod["metadata"]
    counts = [each.get("restartCount", 0) for each in status.get("containerStatuses") or []]
    death = pod_state.why_dead(pod)
    reason = death.text if death else pod_state.why_waiting(pod) or ""
    return {
        "name": metadata["name"],
        "state": "Terminating" if "deletionTimestamp" in metadata else str(status.get("phase", "")),
        "node": str(pod.get("spec", {}).get("nodeName") or ""),
        "restarts": sum(counts),
        "age": age_of(pod, now),
        "why": reason.removeprefix(f"pod {metadata['name']} "),
    }


def _event(event: Manifest, now: datetime) -> dict[str, Any]:
    about = event.get("involvedObject") or {}
    return {
        "age": seconds_since(pod_state.event_time(event), now),
        "type": str(event.get("type") or ""),
        "reason": str(event.get("reason") or ""),
        "object": f"{str(about.get('kind', '')).lower()}/{about.get('name', '')}",
        "count": int(event.get("count") or 1),
        "message": " ".join(str(event.get("message") or "").split()),
    }


def _events_about(job: Manifest, events: Iterable[Manifest]) -> list[Manifest]:
    """Choose the events about this job and its pods since it was made: names come again."""
    names = {job["metadata"]["name"], *jobs.pod_names(job)}
    made = moment(job["metadata"].get("creationTimestamp"))
    about = [each for each in events if (each.get("involvedObject") or {}).get("name") in names]
    return [event for event in about if _seen_at(event) >= made]


def _seen_at(event: Manifest) -> float:
    return moment(pod_state.event_time(event))


Goal = Literal["succeeded", "finished", "running", "deleted"]
"""What a job can be waited for. One that succeeded has been running."""

_REACHED: dict[Goal, tuple[str, ...]] = {
    "succeeded": (jobs.SUCCEEDED,),
    "finished": (jobs.SUCCEEDED, jobs.FAILED),
    "running": (jobs.RUNNING, jobs.SUCCEEDED),
    "deleted": (),
}


def wait_for_job(
    kube: Kube, name: str, goal: Goal, seconds: float, tell: Callable[[str], None]
) -> str:
    """Wait until a job reaches its goal; return what it is then, in a word.

    `tell` is called with each phase, and with what keeps the job from starting. Raises
    DitkRayError when the goal is out of reach or the time is over, KubeNotFoundError for a
    job that is not there, unless that is the goal.
    """
    end = time.monotonic() + seconds
    try:
        job = kube.dijobs.get(name)
    except KubeNotFoundError:
        if goal != "deleted":
            raise
        return "deleted"
    tracker = JobTracker(kube.pods, name)
    for is_there, news in _looks(kube, job, tracker):
        if not is_there:
            break
        for event in news:
            if isinstance(event, (Phase, Waiting)):
                tell(event.phase if isinstance(event, Phase) else event.reason)
            if isinstance(event, Phase) and event.phase in _REACHED[goal]:
                return event.phase.lower()
            if isinstance(event, Ended) and goal != "deleted":
                raise DitkRayError(f"dijob/{name} failed: {event.error}")
        left = end - time.monotonic()
        if left <= 0:
            raise _too_late(kube, job, tracker, seconds)
        time.sleep(min(left, _LOOK_SECONDS))
    if goal != "deleted":
        raise DitkRayError(f"dijob/{name} deleted")
    return "deleted"


def _too_late(kube: Kube, job: Manifest, tracker: JobTracker, seconds: float) -> DitkRayError:
    _look_for_warnings(kube, job, tracker)
    phase = tracker.phase or "without a phase (is the operator of DI-orchestrator running?)"
    text = f"dijob/{tracker.name} is {phase} after {seconds:g} seconds"
    return DitkRayError(f"{text}: {tracker.why}" if tracker.why else text)


def _looks(kube: Kube, job: Manifest, tracker: JobTracker) -> Iterator[tuple[bool, list[JobEvent]]]:
    """Look at a job, again and again; yield whether it is there, and what has happened since."""
    tracker.begin(job)
    is_there, seen = True, 0
    while True:
        with contextlib.suppress(KubeUnreachableError):
            found = _found_again(kube, job)
            is_there = found is not None
            gone = Change("DELETED", {"metadata": job["metadata"]})
            tracker.take_job(Change("MODIFIED", found) if found else gone)
            tracker.look_for_pods()
            if tracker.needs_warnings:
                _look_for_warnings(kube, job, tracker)
        tracker.tick()
        news = tracker.events.after(seen, timeout=0)
        seen += len(news)
        yield is_there, news


def _found_again(kube: Kube, job: Manifest) -> Manifest | None:
    try:
        found = kube.dijobs.get(job["metadata"]["name"], patience=0)
    except KubeNotFoundError:
        return None
    return found if found["metadata"]["uid"] == job["metadata"]["uid"] else None


def _look_for_warnings(kube: Kube, job: Manifest, tracker: JobTracker) -> None:
    found: list[Manifest] = []
    with contextlib.suppress(KubeError):  # reasons that may not be read must not hide the rest
        found = kube.events.list(fields="type=Warning", patience=0)
    tracker.take_warnings(_events_about(job, found))


def printed_lines(
    kube: Kube, job: Manifest, task: str | None, tail: int | None, tell: Callable[[str], None]
) -> Generator[str]:
    """Yield what the pods have printed so far, one pod after the other.

    `tell` is called with why a pod has no log. Raises KubeError when there are no pods, or,
    after all others, when the log of one is out of reach.
    """
    pods = kube.pods.list(jobs.pod_labels(job["metadata"]["name"], task))
    if not pods:
        raise KubeError(_no_pods(job))
    lost: KubeUnreachableError | None = None
    for pod in pods:
        if not pod_state.has_log(pod):
            tell(pod_state.why_waiting(pod) or f"pod {pod['metadata']['name']} has not started")
            continue
        prefix = jobs.line_prefix(pod, jobs.pod_names(job, task))
        query = {"container": pod_state.main_container(pod)["name"]}
        if tail:
            query["tailLines"] = str(tail)
        try:
            with kube.pods.log(pod["metadata"]["name"], query, _SILENCE_SECONDS) as stream:
                for line in stream:
                    yield prefix + line.decode(errors="replace")
        except KubeUnreachableError as error:
            lost = lost or error
    if lost is not None:
        raise lost


def _no_pods(job: Manifest) -> str:
    name, phase = job["metadata"]["name"], jobs.phase_of(job) or "without a phase"
    hint = ""
    if jobs.is_finished(job):
        policy = jobs.spec_of(job).get("cleanPodPolicy", "Running")
        hint = f"\n    cleanPodPolicy is {policy}: the logs are gone with the pods"
    return f"the DIJob {name!r} is {phase} and has no pods{hint}"


def followed_lines(
    kube: Kube, job: Manifest, task: str | None, tail: int | None, tell: Callable[[str], None]
) -> Generator[str]:
    """Yield the lines of a job's pods while they come, until the job's end.

    `tell` is called with what keeps the job from starting. Logs are read no faster than lines
    are taken here.
    """
    lines: queue.Queue[str] = queue.Queue(_WAITING_LINES)

    def follow(pod: Manifest, prefix: str) -> FollowedPod:
        return FollowedPod(kube.pods, pod, lambda text: lines.put(prefix + text), tail=tail)

    tracker = JobTracker(kube.pods, job["metadata"]["name"], task, follow, linger=math.inf)
    try:
        for _, news in _looks(kube, job, tracker):
            for event in news:
                if isinstance(event, Waiting):
                    tell(event.reason)
            end = time.monotonic() + _LOOK_SECONDS
            while not tracker.events.is_over and (left := end - time.monotonic()) > 0:
                with contextlib.suppress(queue.Empty):
                    yield lines.get(timeout=left)
            if tracker.events.is_over:
                break
        while not lines.empty():
            yield lines.get()
    finally:
        tracker.close()
        while not lines.empty():  # a reader that waits for room ends
            lines.get()
