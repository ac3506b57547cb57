"""Requests that nobody waits for: deleting jobs, looking things up, the sign of life."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence

from ditk_ray.errors import KubeConflictError, KubeError, KubeNotFoundError, KubeUnreachableError
from ditk_ray.kube.backoff import Backoff
from ditk_ray.kube.connection import Kube
from ditk_ray.kube.followed_job import FollowedJob
from ditk_ray.kube.heartbeat import BEAT_SECONDS, Heartbeat
from ditk_ray.kube.labels import POD_JOB
from ditk_ray.kube.objects import Manifest

_log = logging.getLogger(__name__)

WARNINGS_SECONDS = 10.0
"""The warnings of the namespace are listed for all jobs at once, and no more often."""

_REFUSED_SECONDS = 30.0
_LONGEST_PAUSE = 5.0


class Errands:
    """Runs in one thread, in the order of urgency; what may pass is tried until it is done.

    A server that does not answer holds up all of it, and is asked with growing pauses.
    """

    def __init__(
        self, kube: Kube, heartbeat: Heartbeat, jobs: Callable[[], Sequence[FollowedJob]]
    ) -> None:
        self._kube = kube
        self._heartbeat = heartbeat
        self._jobs = jobs
        self._changed = threading.Condition()
        self._deletions: dict[str, _Deletion] = {}
        self._pods_refused_at: float | None = None
        self._is_called = False
        self._is_closed = False
        self._beaten_at: float | None = None
        self._warned_at: float | None = None
        self._thread = threading.Thread(target=self._run, name="kube-errands", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def call(self) -> None:
        """Say that a job needs to know something."""
        with self._changed:
            self._is_called = True
            self._changed.notify_all()

    def delete(self, name: str, uid: str | None) -> None:
        """Have a job deleted; if `uid` is given, only that very one."""
        with self._changed:
            self._deletions.setdefault(name, _Deletion(name, uid))
            self._is_called = True
            self._changed.notify_all()

    def wait_for_deletions(self, seconds: float) -> list[str]:
        """Wait until all that were asked for are done; return the names that are left."""
        end = time.monotonic() + seconds
        with self._changed:
            while self._deletions and (left := end - time.monotonic()) > 0:
                self._changed.wait(left)
            return sorted(self._deletions)

    def close(self) -> None:
        """End the thread."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        backoff = Backoff(longest=_LONGEST_PAUSE)
        pause = 0.0
        while self._waited(pause):
            try:
                self._do_all()
                backoff.reset()
                pause = 0.0
            except KubeUnreachableError as error:
                _log.debug("%s", error)
                pause = backoff.pause()
            except Exception:
                _log.exception("something could not be done in the background")
                pause = backoff.pause()

    def _waited(self, pause: float) -> bool:
        """Wait for something to do, at least for `pause` seconds; False is the end."""
        now = time.monotonic()
        earliest, due = now + pause, self._next_due(now)
        with self._changed:
            while not self._is_closed:
                now = time.monotonic()
                if now >= earliest and (self._is_called or pause or now >= due):
                    self._is_called = False
                    return True
                self._changed.wait(max(earliest, due) - now if now >= earliest else earliest - now)
        return False

    def _next_due(self, now: float) -> float:
        beat = now if self._beaten_at is None else self._beaten_at + BEAT_SECONDS
        again = [each.again_at for each in list(self._deletions.values())]
        if self._pods_refused_at is not None:
            again.append(self._pods_refused_at + _REFUSED_SECONDS)
        if self._warned_at is not None and any(job.needs_warnings for job in self._jobs()):
            again.append(self._warned_at + WARNINGS_SECONDS)
        return min([beat, *again])

    def _do_all(self) -> None:
        self._look_for_pods()
        self._delete_all()
        self._warn()
        self._beat()

    def _look_for_pods(self) -> None:
        """Tell jobs their pods. A list that is refused says nothing: it is asked for again."""
        if self._is_recent(self._pods_refused_at, _REFUSED_SECONDS):
            return
        self._pods_refused_at = None
        for job in self._jobs():
            if job.needs_pods:
                before = job.pod_uids
                try:
                    pods = self._kube.pods.list(f"{POD_JOB}={job.name}", patience=0)
                except KubeUnreachableError:
                    raise
                except KubeError as error:
                    _log.warning("%s", error)
                    self._pods_refused_at = time.monotonic()
                    return
                job.take_pods(pods, before)

    def _delete_all(self) -> None:
        for deletion in list(self._deletions.values()):
            if deletion.again_at > time.monotonic() or self._is_closed:
                continue
            try:
                self._kube.dijobs.delete(deletion.name, deletion.uid, patience=0)
            except (KubeNotFoundError, KubeConflictError):
                pass  # it is gone, or another has its name by now
            except KubeUnreachableError:
                raise
            except KubeError as error:
                _log.warning("%s", error)
                deletion.again_at = time.monotonic() + _REFUSED_SECONDS
                continue
            with self._changed:
                del self._deletions[deletion.name]
                self._changed.notify_all()

    def _warn(self) -> None:
        puzzled = [job for job in self._jobs() if job.needs_warnings]
        if not puzzled or self._is_recent(self._warned_at, WARNINGS_SECONDS):
            return
        warnings = self._warnings()
        self._warned_at = time.monotonic()
        for job in puzzled:
            job.take_warnings(warnings)

    def _beat(self) -> None:
        if self._is_recent(self._beaten_at, BEAT_SECONDS):
            return
        now = time.monotonic()
        try:
            self._heartbeat.beat()
        except KubeUnreachableError:
            raise
        except KubeError as error:
            _log.warning("%s", error)
        self._beaten_at = now

    def _is_recent(self, moment: float | None, seconds: float) -> bool:
        return moment is not None and time.monotonic() - moment < seconds

    def _warnings(self) -> list[Manifest]:
        """Return the warnings, or none where they are refused: no job waits for them for ever."""
        try:
            return self._kube.events.list(fields="type=Warning", patience=0)
        except KubeUnreachableError:
            raise
        except KubeError as error:
            _log.warning("%s", error)
            return []


class _Deletion:
    def __init__(self, name: str, uid: str | None) -> None:
        self.name = name
        self.uid = uid
        self.again_at = 0.0
