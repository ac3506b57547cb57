"""The log of a pod's container, followed to its end: every line once, in order."""

from __future__ import annotations

import logging
import re
import threading
import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from ditk_ray.errors import KubeError, KubeNotFoundError
from ditk_ray.kube.http_client import Backoff, LineStream
from ditk_ray.kube.objects import Manifest, Objects
from ditk_ray.kube.pods import has_ended, has_log, main_container

_log = logging.getLogger(__name__)

SILENCE_SECONDS = 300.0  # then a log is requested again: the connection may be dead
DRAIN_SECONDS = 5.0  # of silence, then the log of an ended container has been cut off
GIVE_UP_SECONDS = 30.0  # for which the rest of the log of an ended container is asked for
_TOLD_SECONDS = 2.0
# Lines of the two streams of a container may be a little out of order.
_MARGIN_SECONDS = 1
_STAMPED = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(\.\d+)?(Z|[+-]\d\d:\d\d) ?(.*)", re.DOTALL)


class FollowedPod:
    """A pod, its last known state, and its log, which is read while it is there.

    Its owner brings what it learns elsewhere by `update` and `gone`, and calls `tick` now and
    then, all under its own lock. `take` is called with each line, without its time, and
    `on_read` when the log has come to its end, both from the log's own thread: what `take` waits
    for keeps the log from being read. Without it no log is read. `is_complete` says whether
    nothing that matters can follow what was taken; then a regular end of the stream is
    believed without asking again. With `tail`, reading begins with that many last lines.
    """

    def __init__(
        self,
        pods: Objects,
        manifest: Manifest,
        take: Callable[[str], None] | None = None,
        on_read: Callable[[], None] = lambda: None,
        is_complete: Callable[[], bool] = lambda: False,
        tail: int | None = None,
    ) -> None:
        self.name = str(manifest["metadata"]["name"])
        self.uid = str(manifest["metadata"]["uid"])
        self.manifest = manifest
        self.is_gone = False
        self.is_whole = False
        """Whether its log was read to its end."""
        self.has_begun = False
        """Whether it has a log, or had one."""
        self._pods = pods
        self._take = take
        self._on_read = on_read
        self._is_complete = is_complete
        self._tail = tail
        self._position = SeenLines(begins_late=tail is not None)
        self._backoff = Backoff(longest=3.0)
        self._lock = threading.Lock()
        self._stream: LineStream | None = None
        self._is_done = False
        self._is_stopped = False
        self._ended_at: float | None = None
        self._wake = threading.Event()
        self._heard_at = time.monotonic()
        self._taken_at = 0.0
        self._is_taking = False
        self._had_regular_end = False
        self._thread = threading.Thread(target=self._run, name=f"log-{self.name}", daemon=True)

    @property
    def is_read(self) -> bool:
        """Whether nothing more comes from its log for now."""
        return self._is_done or self._is_stopped or not self.has_begun or self._take is None

    @property
    def has_ended(self) -> bool:
        return self._ended_at is not None

    def update(self, manifest: Manifest) -> None:
        """Take a newer state of it; its log is read from when there is one."""
        if "status" in manifest:
            self.manifest = manifest
        if has_ended(manifest):
            self._end()  # before it begins: then its log is asked for once
        is_over = self.has_begun or self._is_stopped or self.is_gone
        if not is_over and has_log(manifest):
            self.has_begun = True
            try:
                if self._take is not None:
                    self._thread.start()
            except RuntimeError:  # too many threads: the pod's next state tries again
                self.has_begun = False

    def gone(self) -> None:
        """Note that it is deleted: a stream that is open may still be read, no other."""
        self.is_gone = True
        self._end()

    def tick(self) -> None:
        """Break off a stream that hangs although its container has ended."""
        if self._ended_at is None or self._is_taking:
            return
        if time.monotonic() - max(self._heard_at, self._ended_at) > DRAIN_SECONDS:
            self._shut()

    def stop(self) -> None:
        """Stop reading; `on_read` is not called any more."""
        self._is_stopped = True
        self._wake.set()
        self._shut()

    def _end(self) -> None:
        """Note that the container runs no more: what its log holds now is all."""
        if self._ended_at is None:
            self._ended_at = time.monotonic()
            self._wake.set()

    def _run(self) -> None:
        is_whole = False
        try:
            is_whole = self._read()
        except Exception:
            _log.exception("the log of %s could not be followed", self.name)
        if not self._is_stopped:
            self.is_whole = is_whole
            self._is_done = True
            self._on_read()

    def _read(self) -> bool:
        while not self._is_stopped:
            was_over = self._ended_at is not None
            try:
                is_regular = self._read_stream()
            except KubeNotFoundError:
                if not was_over:
                    self._wake.wait(DRAIN_SECONDS)  # to learn that the pod is over
                if self._ended_at is not None:
                    return self._had_regular_end or self._is_complete()
                continue
            except KubeError as error:
                _log.debug("the log of %s: %s", self.name, error)
                is_regular = False
            self._had_regular_end = self._had_regular_end or is_regular
            if is_regular and (was_over or self._is_complete()):
                return True
            ended = time.monotonic() if self._ended_at is None else self._ended_at
            if self.is_gone or time.monotonic() - max(ended, self._taken_at) > GIVE_UP_SECONDS:
                return is_regular or self._is_complete()
            self._pause(is_regular)
        return False

    def _read_stream(self) -> bool:
        container = main_container(self.manifest)["name"]
        query = {"container": container, "follow": "true", "timestamps": "true"}
        since = self._position.since()
        if since:
            query["sinceTime"] = since
        elif self._tail is not None:
            query["tailLines"] = str(self._tail)
        with self._pods.log(self.name, query, SILENCE_SECONDS) as stream:
            with self._lock:
                self._stream = stream
                self._heard_at = time.monotonic()
                if self._is_stopped:
                    stream.shut()
            for line in stream:
                if self._is_stopped:
                    return False
                self._heard_at = time.monotonic()
                text = self._position.new_text(line.decode(errors="replace"))
                if text is not None:
                    self._backoff.reset()
                    self._hand_over(text)
            return not stream.is_shut

    def _hand_over(self, text: str) -> None:
        """Have a line taken, however long that takes: the log does not hang meanwhile."""
        assert self._take is not None
        self._is_taking = True
        self._take(text)
        self._heard_at = self._taken_at = time.monotonic()
        self._is_taking = False

    def _pause(self, is_regular: bool) -> None:
        pause = self._backoff.pause()
        if self._ended_at is None:
            # A regular end mostly means that the container has ended, as will soon be reported.
            self._wake.wait(max(pause, _TOLD_SECONDS) if is_regular else pause)
        elif not is_regular:
            time.sleep(pause)

    def _shut(self) -> None:
        with self._lock:
            if self._stream is not None:
                self._stream.shut()


class SeenLines:
    """Tells lines that were seen from those that are new. Not for use by several threads.

    If reading `begins_late`, lines from before the first one are not new when they come.
    """

    def __init__(self, begins_late: bool = False) -> None:
        self._begins_late = begins_late
        self._first: tuple[int, str] | None = None
        self._second: int | None = None
        self._recent: dict[int, Counter[tuple[str, int]]] = {}
        self._again: Counter[tuple[str, int]] = Counter()

    def since(self) -> str | None:
        """Return the time to ask from, when reading begins again; None is the beginning.

        Lines that were seen since then are expected to come once more.
        """
        self._again = Counter()
        for seen in self._recent.values():
            self._again.update(seen)
        if self._second is None:
            return None
        asked = datetime.fromtimestamp(self._second, UTC) - timedelta(seconds=_MARGIN_SECONDS)
        return asked.strftime("%Y-%m-%dT%H:%M:%SZ")

    def new_text(self, line: str) -> str | None:
        """Return the text of a line, without its time; None if the line was seen before."""
        match = _STAMPED.fullmatch(line)
        if match is None:  # something that the kubelet says, not the container
            return line
        whole, fraction, zone, text = match.groups()
        second = int(datetime.fromisoformat(whole + zone).timestamp())
        stamp = (second, (fraction or ".").ljust(10, "0"))
        self._first = self._first or stamp
        if self._begins_late and stamp < self._first:
            return None
        key = (f"{second}{fraction}", hash(text))
        if self._again[key] > 0:
            self._again[key] -= 1
            return None
        self._note(second, key)
        return text

    def _note(self, second: int, key: tuple[str, int]) -> None:
        """Remember a new line. One that came again does not move the position back."""
        if second != self._second:
            self._second = second
            oldest = second - _MARGIN_SECONDS
            self._recent = {each: seen for each, seen in self._recent.items() if each >= oldest}
        self._recent.setdefault(second, Counter())[key] += 1
