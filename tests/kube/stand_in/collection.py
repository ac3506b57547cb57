"""A local copy of a collection of the API server, kept by a list and a watch."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from typing import Any

import urllib3

from tests.kube.api_client import ApiClient, ApiError

Object = dict[str, Any]
OnChange = Callable[[str, Object], None]
"""Called with ADDED, MODIFIED or DELETED, in order, by the thread that watches."""


class Collection:
    """The objects of a collection by name; lists again whenever its watch ends or breaks."""

    def __init__(self, client: ApiClient, path: str, on_change: OnChange, **query: str) -> None:
        self._client = client
        self._path = path
        self._query = query
        self._on_change = on_change
        self._objects: dict[str, Object] = {}
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._answer: urllib3.BaseHTTPResponse | None = None
        self._thread = threading.Thread(target=self._keep, daemon=True)
        self._thread.start()

    def get(self, name: str) -> Object | None:
        with self._lock:
            return self._objects.get(name)

    def all(self) -> list[Object]:
        with self._lock:
            return list(self._objects.values())

    def remember(self, found: Object) -> None:
        """Take an answer of the API server before the watch brings it."""
        with self._lock:
            known = self._objects.get(found["metadata"]["name"])
            if (
                known is not None
                and _uid(known) == _uid(found)
                and _version(known) < _version(found)
            ):
                self._objects[found["metadata"]["name"]] = found

    def stop(self) -> None:
        self._stopped.set()
        answer = self._answer
        if answer is not None:
            with contextlib.suppress(Exception):
                answer.shutdown()
        self._thread.join(10)

    def _keep(self) -> None:
        while not self._stopped.is_set():
            try:
                self._watch(self._list())
            except (ApiError, urllib3.exceptions.HTTPError, OSError, ValueError):
                self._stopped.wait(0.1)

    def _list(self) -> str:
        found = self._client.get(self._path, **self._query)
        listed = {item["metadata"]["name"]: item for item in found["items"]}
        with self._lock:
            before = dict(self._objects)
        for name, item in before.items():
            if name not in listed or _uid(listed[name]) != _uid(item):
                self._take("DELETED", item)
        for name, item in listed.items():
            known = before.get(name)
            if known is None or _uid(known) != _uid(item):
                self._take("ADDED", item)
            elif _version(known) != _version(item):
                self._take("MODIFIED", item)
        return str(found["metadata"]["resourceVersion"])

    def _watch(self, version: str) -> None:
        query = {"watch": "1", "resourceVersion": version, "timeoutSeconds": "600", **self._query}
        with self._client.stream(self._path, **query) as answer:
            self._answer = answer
            if self._stopped.is_set():  # before there was an answer to shut down
                return
            for event in _lines(answer):
                if self._stopped.is_set() or event["type"] == "ERROR":
                    return
                self._take(event["type"], event["object"])

    def _take(self, kind: str, item: Object) -> None:
        name = item["metadata"]["name"]
        with self._lock:
            if kind == "DELETED":
                self._objects.pop(name, None)
            else:
                known = self._objects.get(name)
                if known is None or _uid(known) != _uid(item) or _version(known) <= _version(item):
                    self._objects[name] = item
        if not self._stopped.is_set():
            self._on_change(kind, item)


def _lines(answer: urllib3.BaseHTTPResponse) -> Iterator[dict[str, Any]]:
    rest = b""
    for chunk in answer.stream(65536):
        *lines, rest = (rest + chunk).split(b"\n")
        for line in filter(None, lines):
            yield json.loads(line)


def _uid(item: Object) -> str:
    return str(item["metadata"]["uid"])


def _version(item: Object) -> int:
    # Opaque to clients by contract; that etcd counts up is good enough for a stand-in.
    return int(item["metadata"]["resourceVersion"])
