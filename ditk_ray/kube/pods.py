"""Why a pod does not start, and what it died of, from what Kubernetes says about it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ditk_ray.config.terms import FailureKind
from ditk_ray.kube.objects import Manifest, moment

MAIN_CONTAINER = "di-container"  # what the operator calls the one that does the work
_STARTING = {"ContainerCreating", "PodInitializing", ""}
_TAKEN_AWAY = (
    "NodeLost",
    "NodeShutdown",
    "NodeAffinity",
    "Preempting",
    "Shutdown",
    "Terminated",
    "UnexpectedAdmissionError",
    "Outof",
    "TerminationByKubelet",
    "ContainerStatusUnknown",
)
_DISK_WORDS = ("ephemeral-storage", "ephemeral local storage", "disk", "inodes")
_KILLED = {137: "KILL", 143: "TERM"}
# With several pods, one's end brings down the others: what they say then is an echo.
_FIRST = [
    FailureKind.OUT_OF_MEMORY,
    FailureKind.DISK_FULL,
    FailureKind.LOST,
    FailureKind.STALL,
    FailureKind.BUG,
]


@dataclass(frozen=True)
class Death:
    """What a pod, or a job, failed of."""

    kind: FailureKind
    text: str


def main_container(pod: Manifest) -> dict[str, Any]:
    """Return the container that does the work: the one with the operator's name, or the first."""
    containers = pod.get("spec", {}).get("containers") or [{"name": MAIN_CONTAINER}]
    named = [each for each in containers if each.get("name") == MAIN_CONTAINER]
    container: dict[str, Any] = (named or containers)[0]
    return container


def has_log(pod: Manifest) -> bool:
    state = _main_state(pod)
    return "running" in state or bool(state.get("terminated", {}).get("startedAt"))


def has_ended(pod: Manifest) -> bool:
    is_over = pod.get("status", {}).get("phase") in ("Succeeded", "Failed")
    return is_over or "terminated" in _main_state(pod)


def why_waiting(pod: Manifest) -> str | None:
    """Return what keeps a pod from starting, if its status says so."""
    name, status = pod["metadata"]["name"], pod.get("status", {})
    if str(status.get("reason", "")).startswith(("Outof", "UnexpectedAdmissionError")):
        return f"pod {name} was rejected by its node: {sentence(status)}"
    for condition in status.get("conditions") or []:
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return f"pod {name} is not scheduled: {sentence(condition)}"
    for state in _states(status):
        waiting = state.get("waiting") or {}
        if waiting.get("reason", "") not in _STARTING:
            return f"pod {name} waits: {sentence(waiting)}"
    return None


def why_dead(pod: Manifest) -> Death | None:
    """Return what a pod died of; None when it lives, or ended well."""
    name, status = pod["metadata"]["name"], pod.get("status", {})
    ends = [state["terminated"] for state in _states(status) if state.get("terminated")]
    if any(end.get("reason") == "OOMKilled" for end in ends):
        return Death(FailureKind.OUT_OF_MEMORY, f"pod {name} used more memory than its limit")
    reason = str(status.get("reason", ""))
    if reason == "Evicted":
        message = str(status.get("message", "")).lower()
        is_disk = any(word in message for word in _DISK_WORDS)
        kind = FailureKind.DISK_FULL if is_disk else FailureKind.LOST
        return Death(kind, f"pod {name} was evicted: {sentence(status)}")
    if reason == "DeadlineExceeded":
        what = f"pod {name} ran for longer than its activeDeadlineSeconds allow"
        return Death(FailureKind.STALL, what)
    if reason.startswith(_TAKEN_AWAY) or status.get("phase") == "Unknown":
        return Death(FailureKind.LOST, f"pod {name} was lost: {sentence(status)}")
    for end in ends:
        if end.get("exitCode"):
            return _death_of_container(name, end)
    if status.get("phase") == "Failed":
        return Death(FailureKind.BUG, f"pod {name} failed: {sentence(status)}")
    return None


def first_death(deaths: Iterable[Death]) -> Death | None:
    """Return the one of several pods' deaths that explains the others."""
    return min(deaths, key=lambda death: _FIRST.index(death.kind), default=None)


def warnings_about(events: Iterable[Manifest], names: Iterable[str]) -> list[str]:
    """Return what warnings about objects of these names say, the newest first, each once."""
    about = set(names)
    found = [event for event in events if event.get("involvedObject", {}).get("name") in about]
    found.sort(key=lambda event: moment(event_time(event)), reverse=True)
    texts = []
    for event in found:
        kind, name = event["involvedObject"].get("kind"), event["involvedObject"]["name"]
        texts.append(f"{'pod' if kind == 'Pod' else kind or 'object'} {name}: {sentence(event)}")
    return list(dict.fromkeys(texts))


def event_time(event: Manifest) -> str:
    times = (event.get("lastTimestamp"), event.get("eventTime"))
    made = event.get("metadata", {}).get("creationTimestamp")
    return next((str(time) for time in (*times, made) if time), "")


def _death_of_container(pod: str, end: Mapping[str, Any]) -> Death:
    code, reason = int(end["exitCode"]), str(end.get("reason", ""))
    if reason.startswith(_TAKEN_AWAY):
        return Death(FailureKind.LOST, f"pod {pod} was lost: {sentence(end)}")
    if code in _KILLED:
        return Death(FailureKind.LOST, f"pod {pod} was ended from outside (SIG{_KILLED[code]})")
    said = sentence(end) if reason not in ("Error", "") or end.get("message") else ""
    return Death(FailureKind.BUG, f"pod {pod} ended with exit code {code}" + (said and f": {said}"))


def _states(status: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for group in ("initContainerStatuses", "containerStatuses"):
        for each in status.get(group) or []:
            yield each.get("state") or {}


def _main_state(pod: Manifest) -> Mapping[str, Any]:
    for each in pod.get("status", {}).get("containerStatuses") or []:
        if each.get("name") == main_container(pod).get("name"):
            return each.get("state") or {}
    return {}


def sentence(said: Mapping[str, Any], otherwise: str = "no reason is given") -> str:
    """Return the reason and the message of a status, a condition or an event."""
    parts = (str(said.get(key) or "").strip() for key in ("reason", "message"))
    return ": ".join(filter(None, parts)) or otherwise
