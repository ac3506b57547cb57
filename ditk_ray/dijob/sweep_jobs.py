"""All jobs of a sweep: submitted, followed over two watches, and deleted in the background."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Literal

from ditk_ray.dijob import jobs
from ditk_ray.dijob.edit import submit_job
from ditk_ray.dijob.liveness import BEAT_SECONDS, Heartbeat
from ditk_ray.dijob.manifests import JobManifests
from ditk_ray.dijob.pod_protocol import LoggedJob
from ditk_ray.dijob.tracker import JobEvent, JobTracker
from ditk_ray.errors import KubeConflictError, KubeError, KubeNotFoundError, KubeUnreachableError
from ditk_ray.kube.connection import Kube
from ditk_ray.kube.http_client import Backoff
from ditk_ray.kube.objects import Manifest
from ditk_ray.kube.watch import Change, Watcher

_log = logging.getLogger(__name__)

WARNINGS_SECONDS = 10.0
"""The warnings of the namespace are listed for all jobs at once, and no more often."""

Kept = Literal["none", "failed", "all"]
"""Which jobs stay in the cluster when they have ended."""

_STAYING: Mapping[Kept, Sequence[str]] = {
    "none": (),
    "failed": (jobs.FAILED,),
    "all": (jobs.SUCCEEDED, jobs.FAILED),
}
_DELETED_AT_ONCE = 16
_REFUSED_SECONDS = 30.0
_LOOK_SECONDS = 0.5
_LONGEST_PAUSE = 5.0


class SweepJobs:
    """Submits, follows and deletes the jobs of one sweep. For any number of threads.

    There is one watch for all DIJobs of the sweep and one for all pods of the operator; a
    job costs two requests to make it, one to delete it, and one for the log of each pod.
    A new one takes up the jobs of one that was lost: `follow` reads the logs from
    their beginning, and the events come from the first on. `keep` says which jobs of
    earlier lives stay when they have ended. Making one raises KubeError when the cluster
    cannot be watched.
    """

    def __init__(self, kube: Kube, sweep_key: str, keep: Kept = "none") -> None:
        self._kube = kube
        self._keep = keep
        self._lock = threading.Lock()
        self._jobs: dict[str, JobTracker] = {}
        self._there: dict[str, Manifest] = {}
        self._released: set[str] = set()
        self._kept: set[str] = set()
        self._closed = threading.Event()
        self._heartbeat = Heartbeat(kube.config_maps, sweep_key)
        self._background = BackgroundRequests(kube, self._heartbeat, self._followed)
        self._dijob_watch = Watcher(kube.dijobs, f"{jobs.SWEEP}={sweep_key}", self._take_job)
        operator = f"{jobs.POD_OPERATOR}={jobs.POD_OPERATOR_NAME}"
        self._pod_watch = Watcher(kube.pods, operator, self._take_pod)
        self._start()

    def submit(self, order: JobManifests, log: Path, is_new: bool = True) -> bool:
        """Make a job and follow it, or follow the one that is there; return whether it is there.

        With `is_new` false it is not made. What its pods print goes to `log`, which is begun
        anew. Raises KubeError when the job cannot be made; it may be submitted again.
        """
        if not is_new:
            return self.follow(order.name, log)
        with self._lock:
            self._released.discard(order.name)
        return self._follow(order.name, log, lambda: submit_job(self._kube, order))

    def follow(self, name: str, log: Path) -> bool:
        """Follow a job that an earlier process made; return whether it is there.

        The only event of one that is not there is that it is lost. Does nothing for a job that
        is followed, or was released.
        """
        if name in self._released:
            return name in self._there
        return self._follow(name, log, lambda: (self._found(name), False))

    def events(self, name: str, after: int, timeout: float) -> list[JobEvent]:
        """Return a job's events after the first `after`, waiting for one up to `timeout` seconds.

        There are none of a job that is not followed, or not any more.
        """
        job = self._jobs.get(name)
        return job.events.after(after, timeout) if job is not None else []

    def release(self, name: str, is_kept: bool = False) -> None:
        """Follow a job no longer, and have it deleted unless it is kept; returns at once."""
        with self._lock:
            job = self._jobs.pop(name, None)
            self._released.add(name)
            if is_kept:
                self._kept.add(name)
        if job is not None:
            job.close()
        if not is_kept:
            self._background.delete(name, job.uid if job is not None else None)

    def close(self, seconds: float = 60.0) -> list[str]:
        """Delete the jobs that are left and not kept, and the sign of life; end everything.

        Waits for deletions up to `seconds`; returns the jobs that are still there.
        """
        if not self._closed.is_set():
            for name, uid in self._to_delete():
                self._background.delete(name, uid)
        left = self._background.wait_for_deletions(seconds)
        self.stop()
        with contextlib.suppress(KubeError):  # it is too old in a few minutes
            self._heartbeat.remove()
        return left

    def stop(self) -> None:
        """Follow nothing any more, and leave the jobs as they are."""
        self._closed.set()
        self._background.close()
        self._dijob_watch.close()
        self._pod_watch.close()
        for job in self._followed():
            job.close()

    def _start(self) -> None:
        self._dijob_watch.start()
        try:
            self._pod_watch.start()
        except BaseException:
            self._dijob_watch.close()
            raise
        self._background.start()

    def _follow(
        self, name: str, log: Path, find: Callable[[], tuple[Manifest | None, bool]]
    ) -> bool:
        """Follow a job unless that is done already; `find` returns it, and whether it is new."""
        with self._lock:
            if name in self._jobs:
                return True
            job = self._jobs[name] = LoggedJob(self._kube.pods, name, log)
        try:
            found, is_new = find()
            if found is None:
                job.absent()
                return False
            job.begin(found)
        except BaseException:
            self._forget(job)
            raise
        job.needs_pods = not is_new  # those of an old one may have changed last before
        return True

    def _found(self, name: str) -> Manifest | None:
        with contextlib.suppress(KubeNotFoundError):
            return self._kube.dijobs.get(name)
        return None

    def _to_delete(self) -> list[tuple[str, str | None]]:
        there = dict(self._there)  # which the watch's thread keeps changing
        kept = set(self._kept)
        kept |= {name for name, job in there.items() if jobs.phase_of(job) in _STAYING[self._keep]}
        names = {job.name: job.uid for job in self._followed() if job.uid is not None}
        names |= {name: job["metadata"]["uid"] for name, job in there.items()}
        return [(name, uid) for name, uid in names.items() if name not in kept]

    def _forget(self, job: JobTracker) -> None:
        job.close()
        with self._lock:
            if self._jobs.get(job.name) is job:
                del self._jobs[job.name]

    def _followed(self) -> list[JobTracker]:
        with self._lock:
            return list(self._jobs.values())

    def _take_job(self, change: Change) -> None:
        name = change.object["metadata"]["name"]
        if change.kind == "DELETED":
            self._there.pop(name, None)
        else:
            self._there[name] = change.object
        if job := self._jobs.get(name):
            job.take_job(change)

    def _take_pod(self, change: Change) -> None:
        name = (change.object["metadata"].get("labels") or {}).get(jobs.POD_JOB, "")
        if job := self._jobs.get(name):
            job.take_pod(change)


class BackgroundRequests:
    """Requests that nobody waits for: deleting jobs, looking things up, the sign of life.

    They run in one thread, in the order of urgency; what may pass is tried until it is done.
    A server that does not answer holds up all of it, and is asked with growing pauses. The
    same thread lets jobs do what is due by time alone.
    """

    def __init__(
        self, kube: Kube, heartbeat: Heartbeat, followed: Callable[[], Sequence[JobTracker]]
    ) -> None:
        self._kube = kube
        self._heartbeat = heartbeat
        self._jobs = followed
        self._changed = threading.Condition()
        self._deletions: dict[str, str | None] = {}
        self._not_before: dict[str, float] = {}
        self._is_called = True
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="kube-requests", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def delete(self, name: str, uid: str | None) -> None:
        """Have a job deleted; if `uid` is given, only that very one."""
        with self._changed:
            self._deletions.setdefault(name, uid)
            self._is_called = True
            self._changed.notify_all()

    def wait_for_deletions(self, seconds: float) -> list[str]:
        """Wait until all that were asked for are done; return the names that are left."""
        with self._changed:
            self._changed.wait_for(lambda: not self._deletions, seconds)
            return sorted(self._deletions)

    def close(self) -> None:
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        backoff = Backoff(longest=_LONGEST_PAUSE)
        pause = 0.0
        # The sign of life first: without it others may take the jobs for left over.
        steps = (self._beat, self._tick, self._delete_all, self._look_for_pods, self._warn)
        while self._waited(pause):
            done = [_is_done(step) for step in steps]
            if all(done):
                backoff.reset()
                pause = 0.0
            else:
                pause = backoff.pause()

    def _waited(self, pause: float) -> bool:
        with self._changed:
            if pause:
                self._changed.wait_for(lambda: self._is_closed, pause)
            else:
                self._changed.wait_for(lambda: self._is_called or self._is_closed, _LOOK_SECONDS)
            self._is_called = False
            return not self._is_closed

    def _is_due(self, what: str) -> bool:
        return time.monotonic() >= self._not_before.get(what, 0.0)

    def _postpone(self, what: str, seconds: float) -> None:
        self._not_before[what] = time.monotonic() + seconds

    def _tick(self) -> None:
        for job in self._jobs():
            job.tick()

    def _look_for_pods(self) -> None:
        """Tell jobs their pods. A list that is refused says nothing: it is asked for again."""
        for job in self._jobs():
            if not job.needs_pods or not self._is_due("pods"):
                continue
            if not _is_answered(job.look_for_pods):
                self._postpone("pods", _REFUSED_SECONDS)

    def _delete_all(self) -> None:
        with self._changed:
            due = {k: uid for k, uid in self._deletions.items() if self._is_due(f"delete {k}")}
        if due:  # several at a time: Ctrl-C may have to delete a thousand
            with ThreadPoolExecutor(_DELETED_AT_ONCE) as pool:
                for done in [pool.submit(self._delete_one, *item) for item in due.items()]:
                    done.result()

    def _delete_one(self, name: str, uid: str | None) -> None:
        if self._is_closed:
            return
        if not _is_answered(partial(self._delete, name, uid)):
            self._postpone(f"delete {name}", _REFUSED_SECONDS)
            return
        with self._changed:
            del self._deletions[name]
            self._changed.notify_all()

    def _delete(self, name: str, uid: str | None) -> None:
        # It may be gone, or another may have its name by now.
        with contextlib.suppress(KubeNotFoundError, KubeConflictError):
            self._kube.dijobs.delete(name, uid, patience=0)

    def _warn(self) -> None:
        puzzled = [job for job in self._jobs() if job.needs_warnings]
        if puzzled and self._is_due("warnings"):
            # There are none where they are refused: no job waits for them for ever.
            found: list[Manifest] = []
            events = self._kube.events
            _is_answered(lambda: found.extend(events.list(fields="type=Warning", patience=0)))
            self._postpone("warnings", WARNINGS_SECONDS)
            for job in puzzled:
                job.take_warnings(found)

    def _beat(self) -> None:
        if self._is_due("beat"):
            _is_answered(self._heartbeat.beat)
            self._postpone("beat", BEAT_SECONDS)


def _is_done(step: Callable[[], None]) -> bool:
    try:
        step()
    except KubeUnreachableError as error:
        _log.debug("%s", error)
        return False
    except Exception:
        _log.exception("something could not be done in the background")
        return False
    return True


def _is_answered(request: Callable[[], object]) -> bool:
    """Send a request; return whether it was not refused. An absent server raises."""
    try:
        request()
        return True
    except KubeUnreachableError:
        raise
    except KubeError as error:
        _log.warning("%s", error)
        return False
