"""All jobs of a sweep, submitted and followed over two watches."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ditk_ray.errors import KubeError, KubeNotFoundError
from ditk_ray.kube.connection import Kube
from ditk_ray.kube.dijobs import FAILED, SUCCEEDED, phase_of
from ditk_ray.kube.errands import Errands
from ditk_ray.kube.followed_job import FollowedJob
from ditk_ray.kube.heartbeat import Heartbeat
from ditk_ray.kube.job_events import JobEvent
from ditk_ray.kube.labels import POD_JOB, POD_OPERATOR, POD_OPERATOR_NAME, SWEEP
from ditk_ray.kube.submission import JobOrder, submit_job
from ditk_ray.kube.watching import Change, Watcher

TICK_SECONDS = 0.5

Kept = Literal["none", "failed", "all"]
"""Which jobs stay in the cluster when they have ended."""

_STAYING: Mapping[Kept, Sequence[str]] = {
    "none": (),
    "failed": (FAILED,),
    "all": (SUCCEEDED, FAILED),
}


@dataclass(frozen=True)
class _Seen:
    """A job of the sweep, as the watch has it."""

    uid: str
    phase: str


class JobWatch:
    """Submits, follows and deletes the jobs of one sweep. For any number of threads.

    There is one watch for all DIJobs of the sweep and one for all pods of the operator; a
    job costs two requests to make it, one to delete it, and one for the log of each pod.
    A new JobWatch takes up the jobs of one that was lost: `follow` reads the logs from
    their beginning, and the events come from the first on. `keep` says which jobs of
    earlier lives stay when they have ended. Making one raises KubeError when the cluster
    cannot be watched.
    """

    def __init__(self, kube: Kube, sweep_key: str, keep: Kept = "none") -> None:
        self._kube = kube
        self._keep = keep
        self._lock = threading.Lock()
        self._jobs: dict[str, FollowedJob] = {}
        self._there: dict[str, _Seen] = {}
        self._released: set[str] = set()
        self._kept: set[str] = set()
        self._closed = threading.Event()
        self._heartbeat = Heartbeat(kube.config_maps, sweep_key)
        self._errands = Errands(kube, self._heartbeat, self._followed)
        self._dijob_watch = Watcher(kube.dijobs, f"{SWEEP}={sweep_key}", self._take_job)
        operator = f"{POD_OPERATOR}={POD_OPERATOR_NAME}"
        self._pod_watch = Watcher(kube.pods, operator, self._take_pod)
        self._ticking = threading.Thread(target=self._tick, name="kube-ticks", daemon=True)
        self._start()

    def submit(self, order: JobOrder, log: Path, is_new: bool = True) -> bool:
        """Make a job and follow it, or follow the one that is there; return whether it is there.

        With `is_new` false it is not made. What its pods print goes to `log`, which is begun
        anew. Raises KubeError when the job cannot be made; it may be submitted again.
        """
        if not is_new:
            return self.follow(order.name, log)
        job, is_first = self._entry(order.name, log, is_forced=True)
        if is_first:
            try:
                submitted = submit_job(self._kube, order)
                job.begin(submitted.job)
            except BaseException:
                self._forget(job)
                raise
            if not submitted.is_new:
                self._look_for_pods(job)
        return True

    def follow(self, name: str, log: Path) -> bool:
        """Follow a job that an earlier process made; return whether it is there.

        One that is not there has `Gone` as its only event. Does nothing for a job that is
        followed, or was released.
        """
        if name in self._released:
            return name in self._there
        job, is_first = self._entry(name, log)
        if is_first:
            try:
                job.begin(self._kube.dijobs.get(name))
            except KubeNotFoundError:
                job.absent()
                return False
            except BaseException:
                self._forget(job)
                raise
            self._look_for_pods(job)
        return True

    def events(self, name: str, after: int, timeout: float) -> list[JobEvent]:
        """Return a job's events after the first `after`, waiting for one up to `timeout` seconds.

        There are none any more of a job that was released.
        """
        job = self._jobs.get(name)
        if job is not None:
            return job.events.after(after, timeout)
        if name in self._released or self._closed.is_set():
            return []
        raise KubeError(f"the job {name} is not followed")

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
            self._errands.delete(name, job.uid if job is not None else None)

    def close(self, seconds: float = 60.0, is_over: bool = True) -> list[str]:
        """End everything; return the jobs that should have been deleted and are still there.

        When the sweep `is_over`, those of its jobs that are left and not kept are deleted,
        and its sign of life with them. Waits for deletions up to `seconds`.
        """
        end = time.monotonic() + seconds
        if is_over:
            for name, uid in self._to_delete():
                self._errands.delete(name, uid)
        left = self._errands.wait_for_deletions(seconds)
        self._closed.set()
        self._errands.close()
        self._dijob_watch.close()
        self._pod_watch.close()
        jobs = self._followed()
        for job in jobs:
            job.close()
        for job in jobs:
            job.join(max(1.0, end - time.monotonic()))
        self._ticking.join()
        if is_over:
            self._remove_sign_of_life()
        return left

    def _start(self) -> None:
        self._dijob_watch.start()
        try:
            self._pod_watch.start()
        except BaseException:
            self._dijob_watch.close()
            raise
        self._errands.start()
        self._ticking.start()

    def _entry(self, name: str, log: Path, is_forced: bool = False) -> tuple[FollowedJob, bool]:
        """Return the job's entry, and whether it was made just now."""
        with self._lock:
            if is_forced:
                self._released.discard(name)
            job = self._jobs.get(name)
            if job is not None:
                return job, False
            job = FollowedJob(self._kube.pods, name, log, self._errands.call)
            self._jobs[name] = job
            return job, True

    def _look_for_pods(self, job: FollowedJob) -> None:
        """Have the pods listed of a job that is not new: they may have changed last before."""
        job.needs_pods = True
        self._errands.call()

    def _to_delete(self) -> list[tuple[str, str | None]]:
        """Return the names and uids of all jobs that are there, or may be, and do not stay."""
        there = dict(self._there)  # which the watch's thread goes on changing
        kept = set(self._kept)
        kept |= {name for name, job in there.items() if job.phase in _STAYING[self._keep]}
        names = {job.name: job.uid for job in self._followed() if job.uid is not None}
        names |= {name: job.uid for name, job in there.items()}
        return [(name, uid) for name, uid in names.items() if name not in kept]

    def _forget(self, job: FollowedJob) -> None:
        job.close()
        with self._lock:
            if self._jobs.get(job.name) is job:
                del self._jobs[job.name]

    def _followed(self) -> list[FollowedJob]:
        with self._lock:
            return list(self._jobs.values())

    def _take_job(self, change: Change) -> None:
        metadata = change.object["metadata"]
        name = metadata["name"]
        if change.kind == "DELETED":
            self._there.pop(name, None)
        else:
            self._there[name] = _Seen(metadata["uid"], phase_of(change.object))
        job = self._jobs.get(name)
        if job is not None:
            job.take_job(change)

    def _take_pod(self, change: Change) -> None:
        name = (change.object["metadata"].get("labels") or {}).get(POD_JOB, "")
        job = self._jobs.get(name)
        if job is not None:
            job.take_pod(change)

    def _tick(self) -> None:
        while not self._closed.wait(TICK_SECONDS):
            for job in self._followed():
                job.tick()

    def _remove_sign_of_life(self) -> None:
        try:
            self._heartbeat.remove()
        except KubeError:
            return  # it is too old in a few minutes
