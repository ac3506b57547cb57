"""What a command shows of DIJobs: their state, what becomes of one while it runs, and its logs.

A job that is followed is looked at once a second. An API server that does not answer is asked
again.
"""

from __future__ import annotations

import contextlib
import queue
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from ditk_ray.dijob import jobs
from ditk_ray.errors import DitkRayError, KubeError, KubeNotFoundError, KubeUnreachableError
from ditk_ray.kube import pods as pod_state
from ditk_ray.kube.connection import Kube
from ditk_ray.kube.objects import Manifest, age_of, moment, seconds_since
from ditk_ray.kube.pod_logs import FollowedPod

_LOOK_SECONDS = 1.0
_SILENCE_SECONDS = 30.0
_WAITING_LINES = 10_000


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


def describe_job(kube: Kube, name: str, now: datetime) -> dict[str, Any]:
    """Look at a job, its pods and its events; return what `describe --format json` prints.

    Ages are in seconds; `events` has the newest last. Raises KubeError.
    """
    job = kube.dijobs.get(name)
    pods = kube.pods.list(f"{jobs.POD_JOB}={name}")
    events = _events_about(job, kube.events.list())
    status = job.get("status") or {}
    counted = status.get("taskStatus") or {}
    conditions = [_condition(each) for each in status.get("conditions") or []]
    return {
        **job_row(job, now),
        "namespace": kube.namespace,
        "created": str(job["metadata"].get("creationTimestamp", "")),
        "why": why(job, pods, events),
        "conditions": sorted(conditions, key=lambda each: each["since"]),
        "tasks": [_task(each, counted) for each, _ in jobs.each_task(jobs.spec_of(job))],
        "pods": [_pod(each, now) for each in pods],
        "events": [_event(each, now) for each in sorted(events, key=_seen_at)],
    }


def why(job: Manifest, pods: list[Manifest], events: Iterable[Manifest] = ()) -> str:
    """Return what a job failed of, or what keeps it from starting; empty if it is well."""
    if jobs.phase_of(job) == jobs.FAILED:
        death = pod_state.first_death(filter(None, map(pod_state.why_dead, pods)))
        texts = [death.text if death else "", jobs.reason_of(job)]
        return "; ".join(filter(None, texts)) or "no reason is given"
    if jobs.is_finished(job) or jobs.phase_of(job) == jobs.RUNNING:
        return ""
    warnings = [event for event in events if event.get("type") == "Warning"]
    about = pod_state.warnings_about(warnings, [job["metadata"]["name"], *jobs.pod_names(job)])
    return next(filter(None, [*map(pod_state.why_waiting, pods), *about]), "")


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


class Goal(StrEnum):
    """What a job can be waited for. One that succeeded has been running."""

    SUCCEEDED = "succeeded"
    FINISHED = "finished"
    RUNNING = "running"
    DELETED = "deleted"


_REACHED = {
    Goal.SUCCEEDED: {jobs.SUCCEEDED},
    Goal.FINISHED: {jobs.SUCCEEDED, jobs.FAILED},
    Goal.RUNNING: {jobs.RUNNING, jobs.SUCCEEDED},
    Goal.DELETED: set[str](),
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
        job: Manifest | None = kube.dijobs.get(name)
    except KubeNotFoundError:
        if goal is not Goal.DELETED:
            raise
        job = None
    told: list[str] = []
    while job is not None:
        phase = jobs.phase_of(job)
        reason = "" if phase == jobs.RUNNING else why(job, _pods_of(kube, job) or [])
        news = [phase] if jobs.is_finished(job) else [phase, reason]
        for text in [text for text in news if text not in (*told, "")]:
            tell(text)
        told = news
        if phase in _REACHED[goal]:
            return phase.lower()
        if jobs.is_finished(job) and goal is not Goal.DELETED:
            raise DitkRayError(f"dijob/{name} failed: {reason}")
        left = end - time.monotonic()
        if left <= 0:
            raise _too_late(kube, job, seconds)
        time.sleep(min(left, _LOOK_SECONDS))
        job = _newer(kube, job)
    if goal is not Goal.DELETED:
        raise DitkRayError(f"dijob/{name} deleted")
    return "deleted"


def _too_late(kube: Kube, job: Manifest, seconds: float) -> DitkRayError:
    name = job["metadata"]["name"]
    phase = jobs.phase_of(job) or "without a phase (is the operator of DI-orchestrator running?)"
    text = f"dijob/{name} is {phase} after {seconds:g} seconds"
    with contextlib.suppress(KubeError):  # a reason that may not be read must not hide the rest
        if reason := describe_job(kube, name, datetime.now(UTC))["why"]:
            return DitkRayError(f"{text}: {reason}")
    return DitkRayError(text)


def _newer(kube: Kube, job: Manifest) -> Manifest | None:
    """Return a job as it is now, None if it is deleted; as it was if the server does not answer."""
    try:
        found = kube.dijobs.get(job["metadata"]["name"], patience=0)
    except KubeNotFoundError:
        return None
    except KubeUnreachableError:
        return job
    return found if found["metadata"]["uid"] == job["metadata"]["uid"] else None


def _pods_of(kube: Kube, job: Manifest, task: str | None = None) -> list[Manifest] | None:
    """Return a job's pods as they are now; None if the server does not answer."""
    with contextlib.suppress(KubeUnreachableError):
        return kube.pods.list(_labels(job, task), patience=0)
    return None


def _labels(job: Manifest, task: str | None) -> str:
    return f"{jobs.POD_JOB}={job['metadata']['name']}" + (
        f",{jobs.POD_TASK}={task}" if task else ""
    )


def printed_lines(
    kube: Kube, job: Manifest, task: str | None, tail: int | None, tell: Callable[[str], None]
) -> Generator[str]:
    """Yield what the pods have printed so far, one pod after the other.

    `tell` is called with why a pod has no log. Raises KubeError when there are no pods, or,
    after all others, when the log of one is out of reach.
    """
    pods = kube.pods.list(_labels(job, task))
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

    `tell` is called with what keeps the job from starting.
    """
    logs = _FollowedLogs(kube, jobs.pod_names(job, task), tail, tell)
    now: Manifest | None = job
    try:
        while True:
            is_over = now is None or jobs.is_finished(now)
            if logs.look(_pods_of(kube, job, task)) and is_over:
                yield from logs.lines(seconds=0)
                return
            yield from logs.lines(_LOOK_SECONDS)
            now = now and _newer(kube, now)
    finally:
        logs.close()


class _FollowedLogs:
    def __init__(
        self, kube: Kube, expected: list[str], tail: int | None, tell: Callable[[str], None]
    ) -> None:
        self._kube = kube
        self._expected = expected
        self._tail = tail
        self._tell = tell
        self._told: set[str] = set()
        self._lines: queue.Queue[str] = queue.Queue(_WAITING_LINES)
        self._pods: dict[str, FollowedPod] = {}

    def look(self, found: list[Manifest] | None) -> bool:
        """Take the pods that there are now, if that is known; return whether all was read."""
        for pod in self._pods.values():
            pod.tick()
        if found is None:
            return False
        for manifest in found:
            self._take(manifest)
        there = {manifest["metadata"]["uid"] for manifest in found}
        for uid in self._pods.keys() - there:
            self._pods[uid].gone()
        return all(pod.is_read for pod in self._pods.values())

    def lines(self, seconds: float) -> Iterator[str]:
        """Yield the lines that are there, and those that come in the next seconds."""
        end = time.monotonic() + seconds
        with contextlib.suppress(queue.Empty):
            while True:
                yield self._lines.get(timeout=max(0.001, end - time.monotonic()))

    def close(self) -> None:
        for pod in self._pods.values():
            pod.stop()

    def _take(self, manifest: Manifest) -> None:
        uid, prefix = manifest["metadata"]["uid"], jobs.line_prefix(manifest, self._expected)
        if uid not in self._pods:
            self._pods[uid] = FollowedPod(
                self._kube.pods,
                manifest,
                lambda text: self._lines.put(prefix + text),
                tail=self._tail,
            )
        self._pods[uid].update(manifest)
        reason = None if self._pods[uid].has_begun else pod_state.why_waiting(manifest)
        if reason and reason not in self._told:
            self._told.add(reason)
            self._tell(reason)
