"""Carrying bytes between a local connection and a pod, both ways at once."""

from __future__ import annotations

import select
import socket

from ditk_ray.kube.pod_stream import PodStream

_CHUNK = 65536
_BROKEN = select.POLLHUP | select.POLLERR
_FULL = 1024 * 1024
"""Of more that one side has not taken yet, the other waits."""

LINGER_SECONDS = 10.0
"""For so long an answer may be silent once the local side has said its last."""


def relay(local: socket.socket, stream: PodStream) -> None:
    """Carry bytes until either side has ended; returns what is still on its way before that.

    A pod's connection cannot be closed by half: a local side that will say no more is
    answered until the pod closes, or is silent for a while.
    """
    local.setblocking(False)
    _Relay(local, stream).run()


class _Relay:
    """The state of one connection. One thread: TLS does not let two use a socket at once."""

    def __init__(self, local: socket.socket, stream: PodStream) -> None:
        self._local = local
        self._stream = stream
        self._for_local = bytearray()
        self._has_ended = False  # the local side says no more
        self._is_gone = False  # the local side takes no more

    def run(self) -> None:
        while not self._is_gone and not (self._stream.is_over and not self._for_local):
            ready = self._wait()
            if self._stream.fileno() in ready or self._stream.has_pending:
                self._serve_stream()
            if ready.get(self._local.fileno(), 0) & _BROKEN:
                return
            if self._local.fileno() in ready:
                self._serve_local()
            if not ready and self._has_ended and not self._stream.has_pending:
                return

    def _wait(self) -> dict[int, int]:
        poll = select.poll()
        for number, events in ((self._local, self._local_events), (self._stream, self._pod_events)):
            if events:  # one that nothing is wanted of would still report that it is closed
                poll.register(number, events)
        # What TLS holds already shows on no socket.
        is_eager = self._stream.has_pending and self._pod_events & select.POLLIN
        pause = 0.0 if is_eager else LINGER_SECONDS if self._has_ended else None
        return dict(poll.poll(None if pause is None else pause * 1000))

    @property
    def _local_events(self) -> int:
        wants = not self._has_ended and self._stream.unsent < _FULL and not self._stream.is_over
        return (select.POLLIN if wants else 0) | (select.POLLOUT if self._for_local else 0)

    @property
    def _pod_events(self) -> int:
        if self._stream.is_over:
            return 0
        wants = len(self._for_local) < _FULL
        return (select.POLLIN if wants else 0) | (select.POLLOUT if self._stream.unsent else 0)

    def _serve_stream(self) -> None:
        if self._stream.unsent:
            self._stream.flush()
        if len(self._for_local) < _FULL:
            self._for_local += self._stream.receive()

    def _serve_local(self) -> None:
        try:
            if self._for_local:
                del self._for_local[: self._local.send(self._for_local)]
            if self._local_events & select.POLLIN:
                self._take(self._local.recv(_CHUNK))
        except BlockingIOError:
            return
        except OSError:
            self._is_gone = True

    def _take(self, data: bytes) -> None:
        if data:
            self._stream.send(data)
        else:
            self._has_ended = True
