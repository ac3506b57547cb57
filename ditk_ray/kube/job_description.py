"""All that there is to say about one job: its phase, its tasks, its pods and its events."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ditk_ray.kube.ages import age_of, moment, seconds_since
from ditk_ray.kube.connection import Kube
from ditk_ray.kube.dijobs import FAILED, is_finished, phase_of, pod_names, spec_of
from ditk_ray.kube.job_table import JobRow, job_row
from ditk_ray.kube.job_waiting import why_failed
from ditk_ray.kube.labels import POD_JOB, POD_TASK
from ditk_ray.kube.objects import Manifest
from ditk_ray.kube.pod_parts import containers_of, each_task, main_container, task_name
from ditk_ray.kube.pod_reasons import event_time, warnings_about, why_dead, why_waiting

_SPEC = ("priority", "cleanPodPolicy", "backoffLimit")


@dataclass(frozen=True)
class Condition:
    """A phase that the job is or was in; `age` is in seconds since it came to it."""

    phase: str
    is_current: bool
    at: str
    age: float
    reason: str
    message: str


@dataclass(frozen=True)
class Task:
    """A task, and how many of its pods are in which phase."""

    name: str
    type: str
    replicas: int
    pods: dict[str, int]
    image: str


@dataclass(frozen=True)
class Pod:
    """A pod; `why` says what keeps it from starting, or what it died of."""

    name: str
    task: str
    state: str
    node: str
    restarts: int
    age: float
    why: str


@dataclass(frozen=True)
class Event:
    """Something that happened to the job or to a pod, last `age` seconds ago."""

    at: str
    age: float
    type: str
    reason: str
    object: str
    count: int
    message: str


@dataclass(frozen=True)
class JobDescription:
    """A job with all that belongs to it; `events` has the newest last."""

    row: JobRow
    namespace: str
    created: str
    labels: dict[str, str]
    spec: dict[str, Any]
    why: str
    conditions: list[Condition]
    tasks: list[Task]
    pods: list[Pod]
    events: list[Event]


def describe_job(kube: Kube, name: str, now: datetime) -> JobDescription:
    """Look at a job, its pods and its events; raises KubeError."""
    job = kube.dijobs.get(name)
    pods = kube.pods.list(f"{POD_JOB}={name}")
    events = _events_about(job, kube.events.list())
    return JobDescription(
        row=job_row(job, now),
        namespace=kube.namespace,
        created=str(job["metadata"].get("creationTimestamp", "")),
        labels=dict(job["metadata"].get("labels") or {}),
        spec={key: value for key, value in spec_of(job).items() if key in _SPEC},
        why=_why(job, pods, events),
        conditions=_conditions(job, now),
        tasks=[_task(each, job) for each, _ in each_task(spec_of(job))],
        pods=[_pod(each, now) for each in sorted(pods, key=_name)],
        events=[_event(each, now) for each in sorted(events, key=_seen_at)],
    )


def _why(job: Manifest, pods: list[Manifest], events: list[Manifest]) -> str:
    """Return why the job failed, or what keeps it from starting."""
    if phase_of(job) == FAILED:
        return why_failed(job, pods)
    if is_finished(job) or phase_of(job) == "Running":
        return ""
    waiting = next(filter(None, map(why_waiting, pods)), None)
    warnings = [event for event in events if event.get("type") == "Warning"]
    names = [_name(job), *pod_names(job)]
    return waiting or next(iter(warnings_about(warnings, names)), "")


def _conditions(job: Manifest, now: datetime) -> list[Condition]:
    given = (job.get("status") or {}).get("conditions") or []
    return [_condition(each, now) for each in sorted(given, key=_since)]


def _condition(given: dict[str, Any], now: datetime) -> Condition:
    return Condition(
        phase=str(given.get("type", "")),
        is_current=given.get("status") == "True",
        at=_since(given),
        age=seconds_since(_since(given), now),
        reason=str(given.get("reason") or ""),
        message=str(given.get("message") or ""),
    )


def _since(condition: dict[str, Any]) -> str:
    return str(condition.get("lastTransitionTime") or condition.get("lastUpdateTime") or "")


def _task(task: dict[str, Any], job: Manifest) -> Task:
    counted = (job.get("status") or {}).get("taskStatus") or {}
    return Task(
        name=task_name(task),
        type=str(task.get("type", "")),
        replicas=int(task.get("replicas", 1)),
        pods=dict(counted.get(task_name(task)) or {}),
        image=str(main_container(task).get("image", "")) if containers_of(task) else "",
    )


def _pod(pod: Manifest, now: datetime) -> Pod:
    status, metadata = pod.get("status") or {}, pod["metadata"]
    counts = [each.get("restartCount", 0) for each in status.get("containerStatuses") or []]
    death = why_dead(pod)
    state = "Terminating" if "deletionTimestamp" in metadata else str(status.get("phase", ""))
    return Pod(
        name=_name(pod),
        task=str((metadata.get("labels") or {}).get(POD_TASK, "")),
        state=state,
        node=str(pod.get("spec", {}).get("nodeName") or ""),
        restarts=sum(counts),
        age=age_of(pod, now),
        why=(death.text if death else why_waiting(pod) or "").removeprefix(f"pod {_name(pod)} "),
    )


def _events_about(job: Manifest, events: Iterable[Manifest]) -> list[Manifest]:
    """Choose the events of this job, and of pods by its names since it is there."""
    uid, made = job["metadata"]["uid"], moment(job["metadata"].get("creationTimestamp"))
    pods = set(pod_names(job))
    found = []
    for event in events:
        about = event.get("involvedObject") or {}
        is_pods = about.get("kind") == "Pod" and about.get("name") in pods
        if about.get("uid") == uid or (is_pods and _seen_at(event) >= made):
            found.append(event)
    return found


def _seen_at(event: Manifest) -> float:
    return moment(event_time(event))


def _event(event: Manifest, now: datetime) -> Event:
    about = event.get("involvedObject") or {}
    return Event(
        at=event_time(event),
        age=seconds_since(event_time(event), now),
        type=str(event.get("type") or ""),
        reason=str(event.get("reason") or ""),
        object=f"{str(about.get('kind', '')).lower()}/{about.get('name', '')}",
        count=int(event.get("count") or 1),
        message=" ".join(str(event.get("message") or "").split()),
    )


def _name(found: Manifest) -> str:
    return str(found["metadata"]["name"])
