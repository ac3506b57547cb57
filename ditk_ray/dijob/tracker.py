"""One job: what the API server says about it and its pods becomes its list of events."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from ditk_ray.config.terms import FailureKind
from ditk_ray.dijob import jobs
from ditk_ray.execution.executor import Ended, Evaluated, Waiting
from ditk_ray.kube.objects import Manifest, Objects
from ditk_ray.kube.pod_logs import FollowedPod
from ditk_ray.kube.pods import Death, first_death, warnings_about, why_dead, why_waiting
from ditk_ray.kube.watch import Change

LINGER_SECONDS = 2.0
"""For so long after a job's end its pods' own ends, and their last lines, are waited for."""

PUZZLED_SECONDS = 5.0
"""A job that has not started for so long, for no known reason, has its warnings looked up."""

_LOOK_AGAIN_SECONDS = 30.0
_MOST_REASONS = 3


@dataclass(frozen=True)
class Phase:
    """The operator moved the job to another phase; `reason` is what it says about that."""

    phase: str
    reason: str = ""


Said = Evaluated | Ended | bytes
"""An evaluation has its message's number for its own: a pod knows of no other. Bytes are those
of `result.pkl`, which nobody has looked into yet."""


@dataclass(frozen=True)
class Message:
    """Something that a pod said. (`uid`, `n`) is one message's for good.

    `n` counts the messages of its process, from 1. A pod that replaces another has its name but
    not its uid, and counts from 1 again.
    """

    n: int
    said: Said
    pod: str = ""
    uid: str = ""


JobEvent = Phase | Waiting | Message | Ended
"""`Ended` is that of the job: all messages came before it, and nothing follows. A job that is
deleted, or not there, is lost. The `error` of one that succeeded says what of its pods' logs
could not be read."""


class EventList:
    """The events of one job, from its first on. For any number of threads."""

    def __init__(self) -> None:
        self.is_over = False
        """Whether nothing follows any more."""
        self._events: list[JobEvent] = []
        self._changed = threading.Condition()

    def add(self, event: JobEvent) -> None:
        """Append an event and wake who waits. After a last one nothing is taken."""
        with self._changed:
            if not self.is_over:
                self._events.append(event)
                self.is_over = isinstance(event, Ended)
                self._changed.notify_all()

    def after(self, count: int, timeout: float) -> list[JobEvent]:
        """Return the events after the first `count`, waiting for one up to `timeout` seconds."""
        with self._changed:
            self._changed.wait_for(lambda: len(self._events) > count or self.is_over, timeout)
            return self._events[count:]

    def close(self) -> None:
        """Take nothing more, and let nobody wait."""
        with self._changed:
            self.is_over = True
            self._changed.notify_all()


class JobTracker:
    """Turns changes into events. Changes may come from any thread, in any order of kinds.

    What it needs to know beyond the watches it says by `needs_pods` and `needs_warnings`; its
    owner asks and answers by `take_pods` and `take_warnings`. Changes that come before `begin`
    are held back. With `task` only its pods count. `follow` is called with each new pod and with
    what tells its lines from those of the others; without it no logs are read.
    """

    def __init__(
        self,
        pods: Objects,
        name: str,
        task: str | None = None,
        follow: Callable[[Manifest, str], FollowedPod] | None = None,
        linger: float = LINGER_SECONDS,
    ) -> None:
        self.name = name
        self.phase = ""
        self.uid: str | None = None
        self.events = EventList()
        self.needs_pods = False
        self.needs_warnings = False
        self._pods_api = pods
        self._task = task
        self._follow = follow
        self._linger = linger
        self._lock = threading.RLock()
        self._held: list[tuple[Callable[[Change], None], Change]] = []
        self._expected: list[str] = []
        self._pods: dict[str, FollowedPod] = {}
        self._reason = ""
        self._begun_at = time.monotonic()
        self._ended_at: float | None = None
        self._gone_at: float | None = None
        self._has_pod_list = False
        self._warnings: Sequence[Manifest] | None = None
        self._warned_at = 0.0
        self._waits_for = ""

    def begin(self, job: Manifest) -> None:
        """Take the job as it is now; only what concerns this very object counts from here."""
        with self._lock:
            self.uid = str(job["metadata"]["uid"])
            self._expected = jobs.pod_names(job, self._task)
            self._take_state(job)
            held, self._held = self._held, []
            for take, change in held:
                take(change)

    def absent(self) -> None:
        gone = f"the job {self.name} was deleted externally"
        self.events.add(Ended("failed", error=gone, failure=FailureKind.LOST))

    def take_job(self, change: Change) -> None:
        with self._lock:
            if self.uid is None:
                self._held.append((self.take_job, change))
            elif change.object["metadata"]["uid"] == self.uid:
                if change.kind == "DELETED":
                    self._gone_at = self._gone_at or time.monotonic()
                if "status" in change.object:
                    self._take_state(change.object)
                self._settle()

    def take_pod(self, change: Change) -> None:
        with self._lock:
            if self.uid is None:
                self._held.append((self.take_pod, change))
            elif not self.events.is_over and self._is_ours(change.object):
                self._take_pod(change)
                self._settle()

    def look_for_pods(self) -> None:
        """Take the pods that the server lists now. Raises KubeError, and asks once only."""
        with self._lock:
            before = frozenset(self._pods)
        labels = jobs.pod_labels(self.name, self._task)
        self.take_pods(self._pods_api.list(labels, patience=0), before)

    def take_pods(self, pods: Sequence[Manifest], before: Collection[str] = ()) -> None:
        """Take all pods that the job has, as the server listed them.

        Of those that were known `before` it was asked, those that it does not list are gone.
        """
        with self._lock:
            self.needs_pods = False
            if self.events.is_over:
                return
            self._has_pod_list = True
            ours = [pod for pod in pods if self._is_ours(pod)]
            for pod in ours:
                self._take_pod(Change("MODIFIED", pod))
            there = {pod["metadata"]["uid"] for pod in ours}
            for each in self._pods.values():
                if each.uid in before and each.uid not in there:
                    each.gone()
            self._settle()

    def take_warnings(self, warnings: Sequence[Manifest]) -> None:
        with self._lock:
            self.needs_warnings = False
            self._warned_at = time.monotonic()
            self._warnings = warnings
            self._tell_waiting()
            self._settle()

    def tick(self) -> None:
        with self._lock:
            if self.uid is None or self.events.is_over:
                return
            for pod in self._pods.values():
                pod.tick()
            if self._is_puzzled():
                self.needs_warnings = True
            self._settle()

    @property
    def why(self) -> str:
        """What the job failed of, or what keeps it from starting; empty if all is well."""
        with self._lock:
            if self.phase == jobs.FAILED:
                return self._ended().error
            return "" if self._ended_at else self._waiting_for() or ""

    def close(self) -> None:
        """Follow it no longer; who waits for events gets none."""
        self.events.close()
        with self._lock:
            self._stop_reading()

    def _take_state(self, job: Manifest) -> None:
        phase, self._reason = jobs.phase_of(job), jobs.reason_of(job)
        if phase and phase != self.phase and self.phase not in (jobs.SUCCEEDED, jobs.FAILED):
            self.phase = phase
            if jobs.is_finished(job):
                self._ended_at = time.monotonic()
                self._has_pod_list = False
            self.events.add(Phase(phase, self._reason))

    def _take_pod(self, change: Change) -> None:
        uid = change.object["metadata"]["uid"]
        pod = self._pods.get(uid)
        if pod is None:
            if change.kind == "DELETED" and "status" not in change.object:
                return
            pod = self._pods[uid] = self._new_pod(change.object)
        if change.kind == "DELETED":
            pod.update(change.object)
            pod.gone()
        elif not pod.is_gone:
            pod.update(change.object)
        self._tell_waiting()

    def _new_pod(self, manifest: Manifest) -> FollowedPod:
        if self._follow is None:
            return FollowedPod(self._pods_api, manifest)
        return self._follow(manifest, jobs.line_prefix(manifest, self._expected))

    def _is_ours(self, pod: Manifest) -> bool:
        owners = pod["metadata"].get("ownerReferences") or []
        uids = [owner.get("uid") for owner in owners if owner.get("kind") == "DIJob"]
        return not uids or self.uid in uids

    def _on_read(self) -> None:
        with self._lock:
            self._settle()

    def _settle(self) -> None:
        if self.uid is None or self.events.is_over:
            return
        if self._ended_at is not None:
            if self._has_said_all(self._ended_at):
                self.events.add(self._ended())
                self._stop_reading()
        elif self._gone_at is not None:
            is_read = all(pod.is_read for pod in self._pods.values())
            if is_read or time.monotonic() - self._gone_at > self._linger:
                self.absent()
                self._stop_reading()

    def _has_said_all(self, ended_at: float) -> bool:
        is_late = time.monotonic() - ended_at > self._linger
        unread = [pod for pod in self._pods.values() if not pod.is_read]
        is_slow = is_late and any(not pod.has_ended for pod in unread)
        # The pods' watch may be behind the jobs', and a pod's whole life lie between.
        if (is_slow or self._lacks_pods()) and not self._has_pod_list:
            self.needs_pods = True
            return False
        for pod in unread:
            if is_slow and not pod.has_ended:  # it runs on, as its cleanPodPolicy lets it
                pod.stop()
        if any(not pod.is_read for pod in unread):
            return False
        if self.phase == jobs.FAILED and self._death() is None and self._warnings is None:
            self.needs_warnings = True
            return False
        return True

    def _lacks_pods(self) -> bool:
        seen = {pod.name for pod in self._pods.values() if pod.has_begun or pod.is_gone}
        return not seen.issuperset(self._expected)

    def _ended(self) -> Ended:
        if self.phase == jobs.SUCCEEDED:
            return Ended(error=self._missing_lines())
        death = self._death() or Death(FailureKind.LOST, self._why_no_pod_failed())
        return Ended("failed", error=death.text, failure=death.kind)

    def _missing_lines(self) -> str:
        whole = {pod.name for pod in self._pods.values() if pod.has_begun and pod.is_whole}
        missing = [name for name in self._expected if name not in whole]
        if not missing:
            return ""
        return f"the log of {', '.join(missing)} could not be read to its end"

    def _death(self) -> Death | None:
        pods = self._pods.values()
        return first_death(found for pod in pods if (found := why_dead(pod.manifest)))

    def _why_no_pod_failed(self) -> str:
        """Return the operator's reason, with the warnings that do not merely repeat it."""
        reason, warnings = self._reason, self._warnings_about_us()
        others = [said for said in warnings if not reason or reason not in said][:_MOST_REASONS]
        reasons = list(filter(None, (reason, *others))) or ["no reason is given"]
        return f"the job failed without a pod of it: {'; '.join(reasons)}"

    def _tell_waiting(self) -> None:
        text = None if self._ended_at else self._waiting_for()
        if text and text != self._waits_for and not _says_less(text, self._waits_for):
            self._waits_for = text
            self.events.add(Waiting(text))

    def _waiting_for(self) -> str | None:
        if self.phase == jobs.RUNNING:
            return None
        return self._pods_wait_for() or next(iter(self._warnings_about_us()), None)

    def _pods_wait_for(self) -> str | None:
        living = [pod for pod in self._pods.values() if not pod.is_gone and not pod.has_begun]
        return next((text for pod in living if (text := why_waiting(pod.manifest))), None)

    def _is_puzzled(self) -> bool:
        has_started = self._pods and all(pod.has_begun for pod in self._pods.values())
        if self.phase == jobs.RUNNING or self._ended_at or has_started or self._pods_wait_for():
            return False
        now = time.monotonic()
        waits_long = now - self._begun_at > PUZZLED_SECONDS
        return waits_long and now - self._warned_at > _LOOK_AGAIN_SECONDS

    def _warnings_about_us(self) -> list[str]:
        return warnings_about(self._warnings or (), [self.name, *self._expected])

    def _stop_reading(self) -> None:
        for pod in self._pods.values():
            pod.stop()


def _says_less(text: str, before: str) -> bool:
    return "ImagePullBackOff" in text and "ErrImagePull" in before
