"""An answer that goes on: a watch or a log, line by line, until its end or until it is shut."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from types import TracebackType

from urllib3.response import BaseHTTPResponse

from ditk_ray.kube.refusals import Asked, unreachable

MAX_LINE_BYTES = 16 * 1024 * 1024
"""A longer line is no line of a log or a watch; what is there of it is given as one."""


class LineStream:
    """The lines of an answer as they come; read by one thread, `shut` by any.

    Reading raises KubeUnreachableError when the connection breaks or is silent for too
    long. A regular end just ends the iteration.
    """

    def __init__(self, response: BaseHTTPResponse, asked: Asked, host: str) -> None:
        self._response = response
        self._asked = asked
        self._host = host
        self._lock = threading.Lock()
        self._is_shut = False
        self._is_closed = False

    @property
    def is_shut(self) -> bool:
        """Whether somebody wants no more of it."""
        return self._is_shut

    def __iter__(self) -> Iterator[bytes]:
        """Yield each line without its end; also a last one that has none."""
        rest = b""
        for chunk in self._chunks():
            *lines, rest = (rest + chunk).split(b"\n")
            yield from lines
            if len(rest) > MAX_LINE_BYTES:
                yield rest
                rest = b""
        if rest:
            yield rest

    def shut(self) -> None:
        """Make the reader stop, also one that is waiting just now."""
        with self._lock:
            self._is_shut = True
            if not self._is_closed:
                # It raises when the answer has come to its end on its own.
                with contextlib.suppress(OSError, ValueError, RuntimeError):
                    self._response.shutdown()

    def close(self) -> None:
        """Give the connection back; for the reader's thread."""
        with self._lock:
            self._is_closed = True
            self._response.close()
            self._response.release_conn()

    def __enter__(self) -> LineStream:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _chunks(self) -> Iterator[bytes]:
        try:
            for chunk in self._response.stream(None):
                if self._is_shut:
                    return
                yield chunk
        # A socket that is shut under TLS can raise nearly anything from its depths.
        except Exception as error:
            if not self._is_shut:
                raise unreachable(self._asked, self._host, error) from None
