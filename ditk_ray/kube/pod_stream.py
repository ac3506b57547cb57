"""Bytes to and from a port of a pod, through the API server."""

from __future__ import annotations

import contextlib
import socket
import ssl

from ditk_ray.kube.websocket import Frame, FrameReader, Opcode, frame_bytes

PROTOCOL = "v4.channel.k8s.io"
"""Each frame begins with the number of its channel: data, or what went wrong."""

_DATA, _ERROR = 0, 1
_PORT_BYTES = 2
_CHUNK = 65536
_WAITS = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class PodStream:
    """One connection to a port of a pod. For one thread, which waits for `fileno` itself.

    Nothing blocks: `receive` takes what has come, and `flush` sends what it can of what
    `send` was given.
    """

    def __init__(self, connected: socket.socket) -> None:
        connected.setblocking(False)
        self._socket = connected
        self._frames = FrameReader()
        self._channel = _DATA
        self._unsent = bytearray()
        # Each channel begins with the port that it is for.
        self._to_skip = {_DATA: _PORT_BYTES, _ERROR: _PORT_BYTES}
        self.is_over = False
        """Whether the pod, or something on the way to it, has closed the connection."""
        self.error = ""
        """What the pod's node said went wrong."""

    def fileno(self) -> int:
        """Return the number to wait for."""
        return self._socket.fileno()

    @property
    def unsent(self) -> int:
        """How many bytes `flush` has left."""
        return len(self._unsent)

    @property
    def has_pending(self) -> bool:
        """Whether there is something to receive that waiting would not show."""
        return isinstance(self._socket, ssl.SSLSocket) and self._socket.pending() > 0

    def receive(self) -> bytes:
        """Return what the pod has sent by now, which may be nothing."""
        try:
            data = self._socket.recv(_CHUNK)
        except _WAITS:
            return b""
        except OSError:
            data = b""
        if not data:
            self.is_over = True
            return b""
        return b"".join(self._take(frame) for frame in self._frames.feed(data))

    def send(self, data: bytes) -> None:
        """Take bytes for the pod."""
        self._unsent += frame_bytes(Opcode.BINARY, bytes([_DATA]) + data)

    def flush(self) -> None:
        """Send as much as goes."""
        try:
            sent = self._socket.send(self._unsent[:_CHUNK])
        except _WAITS:
            return
        except OSError:
            self.is_over = True
            return
        del self._unsent[:sent]

    def close(self) -> None:
        """End the connection; what is unsent is lost."""
        with contextlib.suppress(OSError, ValueError):
            if not self._unsent:
                self._socket.send(frame_bytes(Opcode.CLOSE, b""))
        self._socket.close()

    def _take(self, frame: Frame) -> bytes:
        """Return a frame's data, if it has any."""
        if frame.opcode == Opcode.CLOSE:
            self.is_over = True
        elif frame.opcode == Opcode.PING:
            self._unsent += frame_bytes(Opcode.PONG, frame.payload)
        elif frame.opcode == Opcode.CONTINUED:
            return self._sort(frame.payload)
        elif frame.opcode in (Opcode.BINARY, Opcode.TEXT) and frame.payload:
            self._channel = frame.payload[0]
            return self._sort(frame.payload[1:])
        return b""

    def _sort(self, payload: bytes) -> bytes:
        """Return what is the pod's own, and remember what went wrong."""
        skipped = min(self._to_skip.get(self._channel, 0), len(payload))
        if skipped:
            self._to_skip[self._channel] -= skipped
        rest = payload[skipped:]
        if self._channel == _ERROR:
            self.error += rest.decode(errors="replace")
        return rest if self._channel == _DATA else b""
