"""One pod of a job: its last known state, and its log, read while it is there."""

from __future__ import annotations

from collections.abc import Callable

from ditk_ray.kube.job_events import Message
from ditk_ray.kube.job_log import JobLog
from ditk_ray.kube.marked_lines import (
    MARK,
    MarkedLines,
    PodDiverged,
    PodEnd,
    PodError,
    PodMessage,
)
from ditk_ray.kube.objects import Manifest, Objects
from ditk_ray.kube.pod_logs import PodLogReader
from ditk_ray.kube.pod_reasons import Death, has_ended, has_log, main_container, why_dead

_LAST_WORDS = (PodEnd, PodError, PodDiverged)


class FollowedPod:
    """Tells each message of a pod once, and writes its other lines into the job's log.

    Its owner calls it under its own lock; `tell` and `on_read` come from the log's thread.
    The pod's state is remembered when the pod is gone.
    """

    def __init__(
        self,
        pods: Objects,
        manifest: Manifest,
        log: JobLog,
        prefix: str,
        tell: Callable[[Message], None],
        on_read: Callable[[], None],
    ) -> None:
        self.name = str(manifest["metadata"]["name"])
        self.uid = str(manifest["metadata"]["uid"])
        self.is_gone = False
        self.has_ended = False
        self.is_whole = False
        self.last_words: PodMessage | None = None
        self.manifest = manifest
        self._pods = pods
        self._log = log
        self._prefix = prefix
        self._tell = tell
        self._on_read = on_read
        self._lines = MarkedLines()
        self._newest = 0
        self._reader: PodLogReader | None = None
        self._is_read = False

    @property
    def has_reader(self) -> bool:
        """Whether its log is, or was, read."""
        return self._reader is not None

    @property
    def is_read(self) -> bool:
        """Whether nothing more comes from its log for now."""
        return self._reader is None or self._is_read

    def death(self) -> Death | None:
        """Return what it died of, if it did."""
        return why_dead(self.manifest)

    def update(self, manifest: Manifest) -> None:
        """Take a newer state of it; its log is read from when there is one."""
        if "status" in manifest:
            self.manifest = manifest
        if self._reader is None and not self.is_gone and has_log(manifest):
            self._begin_reading()
        if has_ended(manifest):
            self.has_ended = True
            if self._reader is not None:
                self._reader.container_ended()

    def gone(self) -> None:
        """Take note that it is deleted."""
        self.is_gone = self.has_ended = True
        if self._reader is not None:
            self._reader.pod_gone()

    def tick(self) -> None:
        """Let no log hang."""
        if self._reader is not None:
            self._reader.tick()

    def stop(self) -> None:
        """Read no further."""
        self._is_read = True
        if self._reader is not None:
            self._reader.close()

    def join(self, seconds: float) -> None:
        """Wait for its thread to end."""
        if self._reader is not None:
            self._reader.join(seconds)

    def _begin_reading(self) -> None:
        self._reader = PodLogReader(
            self._pods,
            self.name,
            main_container(self.manifest),
            self._take_line,
            self._done,
            lambda: self.last_words is not None,
        )
        self._reader.start()

    def _take_line(self, line: str) -> None:
        message = self._lines.read(line) if MARK in line else None
        if message is None:
            if MARK not in line:  # a part of a result is nothing for a reader
                self._log.write(self._prefix + line)
            return
        if message.n <= self._newest:
            return
        self._newest = message.n
        if isinstance(message, _LAST_WORDS):
            self.last_words = message
        self._tell(Message(message, self.name, self.uid))

    def _done(self, is_whole: bool) -> None:
        self.is_whole = is_whole
        self._is_read = True
        self._on_read()
