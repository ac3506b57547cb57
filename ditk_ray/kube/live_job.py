"""One job and its pods as they are now, kept up to date by watches."""

from __future__ import annotations

import threading
from types import TracebackType

from ditk_ray.errors import KubeNotFoundError
from ditk_ray.kube.connection import Kube
from ditk_ray.kube.dijobs import is_finished
from ditk_ray.kube.labels import POD_JOB
from ditk_ray.kube.objects import Manifest
from ditk_ray.kube.watching import Change, Watcher


class LiveJob:
    """Watches a job and its pods from `with` on, until its end. For one thread.

    Entering raises KubeError when that cannot be done; a job that is not there is no error,
    and one of the same name that comes later is not the same job.
    """

    def __init__(self, kube: Kube, name: str) -> None:
        self.name = name
        self._kube = kube
        self._changed = threading.Condition()
        self._job: Manifest | None = None
        self._is_there = False
        self._pods: dict[str, Manifest] = {}
        self._gone: set[str] = set()
        self._version = 0
        self._seen = 0
        self._job_watch = Watcher(kube.dijobs, "", self._take_job, f"metadata.name={name}")
        self._pod_watch = Watcher(kube.pods, f"{POD_JOB}={name}", self._take_pod)

    def __enter__(self) -> LiveJob:
        self._job_watch.start()
        try:
            self._pod_watch.start()
        except BaseException:
            self._job_watch.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._job_watch.close()
        self._pod_watch.close()

    @property
    def is_there(self) -> bool:
        """Whether the job has not been deleted."""
        return self._is_there

    @property
    def is_over(self) -> bool:
        """Whether nothing more will come of the job: it has ended, or is deleted."""
        return not self._is_there or is_finished(self.job)

    @property
    def job(self) -> Manifest:
        """The job as it was last seen; raises KubeNotFoundError if it never was."""
        if self._job is None:
            raise KubeNotFoundError(
                f"there is no DIJob {self.name!r} in namespace {self._kube.namespace!r}", 404
            )
        return self._job

    @property
    def pods(self) -> list[Manifest]:
        """The pods as they were last seen, also those that are gone."""
        with self._changed:
            return list(self._pods.values())

    def is_gone(self, pod: Manifest) -> bool:
        """Tell whether a pod is not there any more."""
        return pod["metadata"]["uid"] in self._gone

    def wait(self, seconds: float) -> bool:
        """Wait for a change since the last call; return whether there was one."""
        with self._changed:
            if self._version == self._seen:
                self._changed.wait(seconds)
            has_changed = self._version != self._seen
            self._seen = self._version
            return has_changed

    def _take_job(self, change: Change) -> None:
        with self._changed:
            is_other = self._job is not None and (
                self._job["metadata"]["uid"] != change.object["metadata"]["uid"]
            )
            if is_other:
                return
            if change.kind == "DELETED":
                self._is_there = False
            else:
                self._job, self._is_there = change.object, True
            self._tell()

    def _take_pod(self, change: Change) -> None:
        uid = change.object["metadata"]["uid"]
        with self._changed:
            if change.kind == "DELETED":
                self._gone.add(uid)
                # One that vanished unseen has nothing but a part of its metadata.
                if "spec" in change.object:
                    self._pods[uid] = change.object
            else:
                self._pods[uid] = change.object
            self._tell()

    def _tell(self) -> None:
        self._version += 1
        self._changed.notify_all()
