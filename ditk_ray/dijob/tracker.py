"""One job: what the watches say about it and its pods becomes its list of events."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import TextIO

from ditk_ray.config.terms import FailureKind
from ditk_ray.dijob import events, jobs
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
_LAST_WORDS = (events.PodEnd, events.PodError, events.PodDiverged)

_log = logging.getLogger(__name__)


class JobTracker:
    """Turns changes into events. Changes may come from any thread, in any order of kinds.

    What it needs to know beyond the watches it says by `needs_pods` and `needs_warnings`; its
    owner asks and answers by `take_pods` and `take_warnings`. Changes that come before `begin`
    are held back.
    """

    def __init__(self, pods: Objects, name: str, log: Path) -> None:
        self.name = name
        self.uid: str | None = None
        self.events = events.EventList()
        self.needs_pods = False
        self.needs_warnings = False
        self._pods_api = pods
        self._log_path = log
        self._lock = threading.RLock()
        self._held: list[tuple[Callable[[Change], None], Change]] = []
        self._log: JobLog | None = None
        self._expected: list[str] = []
        self._pods: dict[str, SpeakingPod] = {}
        self._phase = ""
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
            self._expected = jobs.pod_names(job)
            self._log = JobLog(self._log_path)
            self._take_state(job)
            held, self._held = self._held, []
            for take, change in held:
                take(change)

    def absent(self) -> None:
        self.events.add(events.Gone())

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

    @property
    def pod_uids(self) -> frozenset[str]:
        with self._lock:
            return frozenset(self._pods)

    def take_pods(self, pods: Sequence[Manifest], before: Collection[str]) -> None:
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

    def close(self) -> None:
        """Follow it no longer; who waits for events gets none."""
        self.events.close()
        with self._lock:
            self._stop_reading()

    def _take_state(self, job: Manifest) -> None:
        phase, self._reason = jobs.phase_of(job), jobs.reason_of(job)
        if phase and phase != self._phase and self._phase not in (jobs.SUCCEEDED, jobs.FAILED):
            self._phase = phase
            if jobs.is_finished(job):
                self._ended_at = time.monotonic()
                self._has_pod_list = False
            self.events.add(events.Phase(phase, self._reason))

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

    def _new_pod(self, manifest: Manifest) -> SpeakingPod:
        assert self._log is not None
        prefix = jobs.line_prefix(manifest, self._expected)
        return SpeakingPod(
            self._pods_api, manifest, self._log, prefix, self.events.add, self._on_read
        )

    def _is_ours(self, pod: Manifest) -> bool:
        owners = pod["metadata"].get("ownerReferences") or []
        uids = [owner.get("uid") for owner in owners if owner.get("kind") == "DIJob"]
        return not uids or self.uid in uids

    def _on_read(self) -> None:
        with self._lock:
            self._settle()

    def _settle(self) -> None:
        """Tell the end when all that belongs before it has been told."""
        if self.uid is None or self.events.is_over:
            return
        if self._ended_at is not None:
            if self._has_said_all(self._ended_at):
                self.events.add(self._finished())
                self._stop_reading()
        elif self._gone_at is not None:
            is_read = all(pod.is_read for pod in self._pods.values())
            if is_read or time.monotonic() - self._gone_at > LINGER_SECONDS:
                self.events.add(events.Gone())
                self._stop_reading()

    def _has_said_all(self, ended_at: float) -> bool:
        """Tell whether nothing is to come from the pods of a job that has ended."""
        is_late = time.monotonic() - ended_at > LINGER_SECONDS
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
        if self._phase == jobs.FAILED and self._death() is None and self._warnings is None:
            self.needs_warnings = True
            return False
        return True

    def _lacks_pods(self) -> bool:
        seen = {pod.name for pod in self._pods.values() if pod.has_reader or pod.is_gone}
        return not seen.issuperset(self._expected)

    def _finished(self) -> events.Finished:
        if self._phase == jobs.SUCCEEDED:
            return events.Finished(True, None, self._missing_lines())
        death = self._death() or Death(FailureKind.LOST, self._why_no_pod_failed())
        return events.Finished(False, death.kind, death.text)

    def _missing_lines(self) -> str:
        whole = {pod.name for pod in self._pods.values() if pod.has_reader and pod.is_whole}
        missing = [name for name in self._expected if name not in whole]
        if not missing:
            return ""
        return f"the log of {', '.join(missing)} could not be read to its end"

    def _death(self) -> Death | None:
        pods = self._pods.values()
        death = first_death(found for pod in pods if (found := why_dead(pod.manifest)))
        if death is not None and death.kind is not FailureKind.BUG:
            return death
        for pod in pods:
            if isinstance(pod.last_words, events.PodError):
                return Death(pod.last_words.failure, pod.last_words.message)
            if isinstance(pod.last_words, events.PodDiverged):
                return Death(FailureKind.BUG, pod.last_words.message)
        return death

    def _why_no_pod_failed(self) -> str:
        """Return the operator's reason, with the warnings that do not merely repeat it."""
        reason, warnings = self._reason, self._warnings_about_us()
        others = [said for said in warnings if not reason or reason not in said][:_MOST_REASONS]
        reasons = list(filter(None, (reason, *others))) or ["no reason is given"]
        return f"the job failed without a pod of it: {'; '.join(reasons)}"

    def _tell_waiting(self) -> None:
        if self._phase == jobs.RUNNING or self._ended_at is not None:
            return
        text = self._pods_wait_for() or next(iter(self._warnings_about_us()), None)
        if text and text != self._waits_for and not _says_less(text, self._waits_for):
            self._waits_for = text
            self.events.add(events.Waiting(text))

    def _pods_wait_for(self) -> str | None:
        living = [pod for pod in self._pods.values() if not pod.is_gone and not pod.has_reader]
        return next((text for pod in living if (text := why_waiting(pod.manifest))), None)

    def _is_puzzled(self) -> bool:
        has_started = self._pods and all(pod.has_reader for pod in self._pods.values())
        if self._phase == jobs.RUNNING or self._ended_at or has_started or self._pods_wait_for():
            return False
        now = time.monotonic()
        waits_long = now - self._begun_at > PUZZLED_SECONDS
        return waits_long and now - self._warned_at > _LOOK_AGAIN_SECONDS

    def _warnings_about_us(self) -> list[str]:
        return warnings_about(self._warnings or (), [self.name, *self._expected])

    def _stop_reading(self) -> None:
        for pod in self._pods.values():
            pod.stop()
        if self._log is not None:
            self._log.close()


def _says_less(text: str, before: str) -> bool:
    """Tell whether a pod only waits to try again what has failed with a better reason."""
    return "ImagePullBackOff" in text and "ErrImagePull" in before


class SpeakingPod(FollowedPod):
    """Tells each message of a pod once, and writes its other lines into the job's log."""

    def __init__(
        self,
        pods: Objects,
        manifest: Manifest,
        log: JobLog,
        prefix: str,
        tell: Callable[[events.Message], None],
        on_read: Callable[[], None],
    ) -> None:
        super().__init__(
            pods, manifest, self._take_line, on_read, lambda: self.last_words is not None
        )
        self.last_words: events.PodMessage | None = None
        self._log = log
        self._prefix = prefix
        self._tell = tell
        self._lines = events.MarkedLines()
        self._newest = 0

    def _take_line(self, line: str) -> None:
        if events.MARK not in line:
            self._log.write(self._prefix + line)
            return
        message = self._lines.read(line)
        if message is None or message.n <= self._newest:
            return
        self._newest = message.n
        if isinstance(message, _LAST_WORDS):
            self.last_words = message
        self._tell(events.Message(message, self.name, self.uid))


class JobLog:
    """Writes lines of any number of pods into one file, begun anew. For several threads.

    A file that cannot be written costs its lines and a warning, nothing else.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._file: TextIO | None = None
        with self._giving_up():
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("w", buffering=1, encoding="utf-8", errors="replace")

    def write(self, line: str) -> None:
        with self._lock, self._giving_up():
            if self._file is not None:
                self._file.write(line + "\n")

    def close(self) -> None:
        """Close the file; lines that come later are dropped."""
        with self._lock, self._giving_up():
            file, self._file = self._file, None
            if file is not None:
                file.close()

    @contextlib.contextmanager
    def _giving_up(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            _log.warning("the log %s is not written any more: %s", self._path, error)
            self._file = None
