"""The log of a pod's container, followed to its end: every line once, in order."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable

from ditk_ray.errors import KubeError, KubeNotFoundError
from ditk_ray.kube.backoff import Backoff
from ditk_ray.kube.log_position import LogPosition
from ditk_ray.kube.objects import Objects
from ditk_ray.kube.streams import LineStream

_log = logging.getLogger(__name__)

SILENCE_SECONDS = 300.0
"""A log that says nothing for so long is asked for anew: the connection may be dead."""

DRAIN_SECONDS = 5.0
"""A log whose container has ended, and that says nothing for so long, has been cut off."""

GIVE_UP_SECONDS = 30.0
"""For so long the rest of the log of an ended container is asked for in vain."""

_LONGEST_PAUSE = 3.0
_TOLD_SECONDS = 2.0


class PodLogReader:
    """Reads the log of one container in a thread of its own.

    `take` is called with each line, without its time; `done` once, at the end, with whether
    the log was read to its end. Both come from the reader's thread. Its owner says by
    `container_ended` and `pod_gone` what it learns elsewhere, and calls `tick` now and then.
    `is_complete` says whether nothing that matters can follow what was taken; then a regular
    end of the stream is believed without asking again. With `tail`, reading begins with
    that many last lines.
    """

    def __init__(
        self,
        pods: Objects,
        pod: str,
        container: str,
        take: Callable[[str], None],
        done: Callable[[bool], None],
        is_complete: Callable[[], bool] = lambda: False,
        tail: int | None = None,
    ) -> None:
        self._pods = pods
        self._pod = pod
        self._container = container
        self._take = take
        self._done = done
        self._is_complete = is_complete
        self._tail = tail
        self._position = LogPosition(begins_late=tail is not None)
        self._backoff = Backoff(longest=_LONGEST_PAUSE)
        self._lock = threading.Lock()
        self._stream: LineStream | None = None
        self._closed = False
        self._ended_at: float | None = None
        self._is_gone = False
        self._wake = threading.Event()
        self._heard_at = time.monotonic()
        self._had_regular_end = False
        self._thread = threading.Thread(target=self._run, name=f"log-{pod}", daemon=True)

    def start(self) -> None:
        """Begin to read."""
        self._thread.start()

    def container_ended(self) -> None:
        """Say that the container runs no more: what its log holds now is all."""
        if self._ended_at is None:
            self._ended_at = time.monotonic()
            self._wake.set()

    def pod_gone(self) -> None:
        """Say that the pod is deleted: a stream that is open may still be read, no other."""
        self._is_gone = True
        self.container_ended()

    def tick(self) -> None:
        """Break off a stream that hangs although its container has ended."""
        if self._ended_at is None:
            return
        if time.monotonic() - max(self._heard_at, self._ended_at) > DRAIN_SECONDS:
            self._shut()

    def close(self) -> None:
        """Stop reading; `done` is not called any more by a reader that is closed."""
        self._closed = True
        self._wake.set()
        self._shut()

    def join(self, seconds: float) -> bool:
        """Wait for the thread to end; say whether it has."""
        if self._thread.ident is None or self._thread is threading.current_thread():
            return True
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _run(self) -> None:
        is_whole = False
        with contextlib.suppress(_ClosedError):
            try:
                is_whole = self._read()
            except _ClosedError:
                raise
            except Exception:
                _log.exception("the log of %s could not be followed", self._pod)
            if not self._closed:
                self._done(is_whole)

    def _read(self) -> bool:
        """Read to the end; say whether it was the true end."""
        while True:
            was_over = self._ended_at is not None
            try:
                is_regular = self._read_stream()
            except KubeNotFoundError:
                if was_over or self._wait_for_end(DRAIN_SECONDS):
                    return self._had_regular_end or self._is_complete()
                continue
            except KubeError as error:
                _log.debug("the log of %s: %s", self._pod, error)
                is_regular = False
            self._had_regular_end = self._had_regular_end or is_regular
            if is_regular and (was_over or self._is_complete()):
                return True
            if self._has_given_up():
                return is_regular or self._is_complete()
            self._pause(is_regular)

    def _read_stream(self) -> bool:
        """Read one stream; say whether it came to a regular end. Raises KubeError."""
        query = {"container": self._container, "follow": "true", "timestamps": "true"}
        since = self._position.since()
        if since:
            query["sinceTime"] = since
        elif self._tail is not None:
            query["tailLines"] = str(self._tail)
        with self._pods.log(self._pod, query, SILENCE_SECONDS) as stream:
            with self._lock:
                self._stream = stream
                self._heard_at = time.monotonic()
                if self._closed:
                    stream.shut()
            for line in stream:
                self._heard_at = time.monotonic()
                self._take_line(line)
            return not stream.is_shut

    def _take_line(self, line: bytes) -> None:
        if self._closed:
            raise _ClosedError
        text = self._position.new_text(line.decode(errors="replace"))
        if text is not None:
            self._backoff.reset()
            self._take(text)

    def _wait_for_end(self, seconds: float) -> bool:
        """Wait to be told that a pod that was not found is over; say whether that came."""
        self._wake.wait(seconds)
        if self._closed:
            raise _ClosedError
        return self._ended_at is not None

    def _has_given_up(self) -> bool:
        if self._is_gone:
            return True
        return self._ended_at is not None and time.monotonic() - self._ended_at > GIVE_UP_SECONDS

    def _pause(self, is_regular: bool) -> None:
        """Wait a while before asking again, or until the container's end is known."""
        pause = self._backoff.pause()
        if self._ended_at is None:
            # A regular end mostly means that the container has ended, as will soon be told.
            self._wake.wait(max(pause, _TOLD_SECONDS) if is_regular else pause)
        elif not is_regular:
            time.sleep(pause)
        if self._closed:
            raise _ClosedError

    def _shut(self) -> None:
        with self._lock:
            if self._stream is not None:
                self._stream.shut()


class _ClosedError(Exception):
    """The reader was closed, and nothing more is to be told."""
