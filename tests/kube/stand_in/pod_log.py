"""A container's log, written by one thread and followed by any number."""

from __future__ import annotations

import datetime
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass

LONGEST = 16384
"""Longer lines are kept in pieces, as container runtimes do."""


@dataclass(frozen=True)
class Entry:
    """A line with its end, or a piece of one without."""

    nanoseconds: int
    text: bytes

    @property
    def timestamp(self) -> bytes:
        """The time as kubelets print it: nine digits, UTC."""
        seconds, rest = divmod(self.nanoseconds, 1_000_000_000)
        at = datetime.datetime.fromtimestamp(seconds, datetime.UTC)
        return f"{at:%Y-%m-%dT%H:%M:%S}.{rest:09d}Z".encode()


@dataclass(frozen=True)
class LogQuery:
    """What a reader wants of a log."""

    follow: bool = False
    timestamps: bool = False
    since: int = 0
    """Nanoseconds since 1970."""
    tail: int | None = None
    limit: int | None = None
    """Bytes."""


class PodLog:
    """Grows until it is closed."""

    def __init__(self) -> None:
        self._entries: list[Entry] = []
        self._closed = False
        self._changed = threading.Condition()

    def write(self, text: bytes) -> None:
        with self._changed:
            self._entries.append(Entry(time.time_ns(), text))
            self._changed.notify_all()

    def close(self) -> None:
        """Let followers come to an end."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def text(self) -> str:
        with self._changed:
            return b"".join(entry.text for entry in self._entries).decode(errors="replace")

    def read(self, query: LogQuery) -> Iterator[bytes]:
        """Yield the log in pieces; with `follow`, until it is closed."""
        at, left = self._first(query), query.limit
        while True:
            with self._changed:
                while query.follow and at == len(self._entries) and not self._closed:
                    self._changed.wait()
                new, closed = self._entries[at:], self._closed
            at += len(new)
            piece = b"".join(
                _shown(entry, query) for entry in new if entry.nanoseconds >= query.since
            )
            if left is not None:
                piece, left = piece[:left], left - len(piece)
            if piece:
                yield piece
            if closed or not query.follow or (left is not None and left <= 0):
                return

    def _first(self, query: LogQuery) -> int:
        with self._changed:
            return 0 if query.tail is None else max(0, len(self._entries) - query.tail)


def _shown(entry: Entry, query: LogQuery) -> bytes:
    return entry.timestamp + b" " + entry.text if query.timestamps else entry.text
