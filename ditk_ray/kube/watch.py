"""List and watch: every change of a collection, however often the connection goes."""

from __future__ import annotations

import json
import logging
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from ditk_ray.errors import KubeError, KubeExpiredError, KubeUnreachableError
from ditk_ray.kube.http_client import Backoff, LineStream
from ditk_ray.kube.objects import Manifest, Objects

_log = logging.getLogger(__name__)

WATCH_SECONDS = (240, 300)  # then the server ends a watch, at random so that not all end at once
SILENCE_SECONDS = 90.0  # without even a bookmark, then a watch is taken for dead
LIST_AGAIN_SECONDS = 600.0  # then a plain list is compared, whatever the watch has said
_GOOD_SECONDS = 1.0
_KEPT = ("name", "uid", "labels", "ownerReferences", "resourceVersion")

ChangeKind = Literal["ADDED", "MODIFIED", "DELETED"]


@dataclass(frozen=True)
class Change:
    """What happened to an object. One that vanished unseen has only part of its metadata."""

    kind: ChangeKind
    object: Manifest


class Watcher:
    """Calls `on_change` with every real change of a collection, in order, from one thread.

    A change that was reported is not reported again after another list or watch. Between
    two states of an object others may be missed, its end never. `start` lists in the
    caller's thread; all calls after that come from the watcher's own.
    """

    def __init__(self, objects: Objects, labels: str, on_change: Callable[[Change], None]) -> None:
        self._objects = objects
        self._labels = labels
        self._on_change = on_change
        self._known: dict[str, Manifest] = {}
        self._version = ""
        self._listed_at = 0.0
        self._backoff = Backoff(longest=5.0)
        self._trouble: str | None = None
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._stream: LineStream | None = None
        self._opened: LineStream | None = None
        name = f"watch-{objects.resource.plural}"
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Report what is there, then watch in the background.

        Raises KubeError when it cannot be listed, or may not be watched.
        """
        self._take_list(*self._objects.snapshot(self._labels))
        try:
            self._opened = self._open()
        except (KubeUnreachableError, KubeExpiredError):
            self._opened = None  # that passes, and then it is opened
        self._thread.start()

    def close(self) -> None:
        """End it; after this `on_change` is not called any more."""
        self._stop.set()
        with self._lock:
            if self._stream is not None:
                self._stream.shut()
        if self._thread.ident is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        while not self._stop.is_set():
            begun = time.monotonic()
            try:
                self._step()
                self._trouble = None
            except KubeExpiredError:
                self._version = ""
            except KubeError as error:
                self._note(error)
            except Exception:  # of any kind: the sweep must not wait for this in vain
                _log.exception("watching %s starts again", self._objects.resource.plural)
                self._version = ""
            # A watch that ends at once, again and again, is trouble too.
            if time.monotonic() - begun > _GOOD_SECONDS:
                self._backoff.reset()
            self._stop.wait(self._backoff.pause())

    def _step(self) -> None:
        if not self._version or time.monotonic() - self._listed_at > LIST_AGAIN_SECONDS:
            self._take_list(*self._objects.snapshot(self._labels, patience=0))
        opened, self._opened = self._opened, None
        with opened or self._open() as stream:
            with self._lock:
                self._stream = stream
            # `close` may have come before there was a stream to shut.
            if not self._stop.is_set():
                for line in stream:
                    self._take_line(line)
            with self._lock:
                self._stream = None

    def _open(self) -> LineStream:
        seconds = random.randint(*WATCH_SECONDS)
        return self._objects.watch(self._version, self._labels, seconds, SILENCE_SECONDS)

    def _take_line(self, line: bytes) -> None:
        if self._stop.is_set() or not line.strip():
            return
        try:
            event = json.loads(line)
            kind, found = event["type"], event["object"]
        except (ValueError, KeyError, TypeError):
            raise KubeUnreachableError("a watch was broken off within a line") from None
        if kind == "ERROR":
            error = KubeExpiredError if found.get("code") == 410 else KubeUnreachableError
            raise error(f"the server ended a watch: {found.get('message')}", found.get("code"))
        self._version = found["metadata"]["resourceVersion"]
        if kind == "DELETED":
            if self._known.pop(found["metadata"]["name"], None) is not None:
                self._tell("DELETED", found)
        elif kind in ("ADDED", "MODIFIED"):
            self._take_object(found)

    def _take_list(self, items: list[Manifest], version: str) -> None:
        there = {item["metadata"]["name"] for item in items}
        for name in [name for name in self._known if name not in there]:
            self._tell("DELETED", self._known.pop(name))
        for item in items:
            self._take_object(item)
        self._version = version
        self._listed_at = time.monotonic()

    def _take_object(self, found: Manifest) -> None:
        metadata = found["metadata"]
        before = self._known.get(metadata["name"])
        kept = {key: metadata[key] for key in _KEPT if key in metadata}
        self._known[metadata["name"]] = {"metadata": kept}
        if before is None:
            self._tell("ADDED", found)
        elif before["metadata"]["uid"] != metadata["uid"]:
            self._tell("DELETED", before)
            self._tell("ADDED", found)
        elif before["metadata"]["resourceVersion"] != metadata["resourceVersion"]:
            self._tell("MODIFIED", found)

    def _tell(self, kind: ChangeKind, found: Manifest) -> None:
        try:
            self._on_change(Change(kind, found))
        except Exception:
            _log.exception("a change of %s was not dealt with", found["metadata"].get("name"))

    def _note(self, error: KubeError) -> None:
        """Say once what is wrong. What no waiting mends begins with a list again."""
        if not isinstance(error, KubeUnreachableError):
            self._version = ""
        kind = type(error).__name__
        if kind != self._trouble and not self._stop.is_set():
            _log.warning("watching continues when this is over: %s", error)
        self._trouble = kind
