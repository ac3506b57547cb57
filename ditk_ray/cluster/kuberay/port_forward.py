"""A port of this machine's loopback that leads to a Service in Kubernetes."""

from __future__ import annotations

import contextlib
import errno
import socket
import threading
from collections.abc import Callable
from types import TracebackType

from ditk_ray.cluster.kuberay.relay import relay
from ditk_ray.cluster.kuberay.service_pods import ServicePods, why_refused
from ditk_ray.errors import BadConfigError, KubeError, Problem

LOOPBACK = "127.0.0.1"
"""Whoever reaches a dashboard runs code in the cluster: nothing else is ever listened at."""

PATIENCE = 20.0
"""For so long a connection waits for a pod that is being replaced."""

_PORTS_TRIED = 100
_WAITING = 128
_CHUNK = 65536


class PortForward:
    """Listens at a port of loopback and carries each connection to a pod of a Service.

    The port is the wanted one, or the next that is free. Every connection is a stream of its
    own, so one that breaks harms no other, and the next finds the pod that is ready then.
    `tell` is called, from any thread, with what goes wrong. Ends with `close`.
    """

    def __init__(self, pods: ServicePods, port: int, tell: Callable[[str], None]) -> None:
        self._pods = pods
        self._tell = tell
        self._told = ""
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._is_closed = False
        self._server = _listen(port)
        self.port = int(self._server.getsockname()[1])
        self._thread = threading.Thread(target=self._accept, name="forward", daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """What to type into a browser of this machine."""
        return f"http://{LOOPBACK}:{self.port}"

    def close(self) -> None:
        """Listen no more, and break what is open."""
        self._is_closed = True
        with contextlib.suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
        self._server.close()
        with self._lock:
            for each in self._open:
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)
        self._thread.join()

    def __enter__(self) -> PortForward:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _accept(self) -> None:
        while not self._is_closed:
            try:
                local, _ = self._server.accept()
            except OSError:
                if not self._is_closed:  # out of files, most likely: what is open may end
                    threading.Event().wait(0.1)
                continue
            threading.Thread(target=self._serve, args=(local,), daemon=True).start()

    def _serve(self, local: socket.socket) -> None:
        with self._lock:
            self._open.add(local)
        try:
            self._carry(local)
        except KubeError as error:
            self._say(why_refused(error))
        finally:
            with self._lock:
                self._open.discard(local)
            _drain(local)
            local.close()

    def _carry(self, local: socket.socket) -> None:
        stream = self._pods.connect(PATIENCE)
        try:
            relay(local, stream)
            self._say(stream.error.strip())
        finally:
            stream.close()

    def _say(self, text: str) -> None:
        """Tell what goes wrong, but not again and again: browsers try a lot."""
        with self._lock:
            is_news = bool(text) and text != self._told and not self._is_closed
            self._told = text
        if is_news:
            self._tell(f"{self._pods.service}: {text}")


def _drain(local: socket.socket) -> None:
    """Take in what nobody will read: closed with that, a connection is reset, not ended."""
    with contextlib.suppress(OSError):
        local.setblocking(False)
        while local.recv(_CHUNK):
            pass


def _listen(port: int) -> socket.socket:
    """Return a socket at the wanted port of loopback, or at a free one after it."""
    for number in [*range(port, min(port + _PORTS_TRIED, 65536)), 0]:
        try:
            return socket.create_server((LOOPBACK, number), backlog=_WAITING)
        except PermissionError as error:
            hint = "ports from 1024 on are for everyone"
            raise BadConfigError(Problem(f"port {number}", "is not allowed", hint)) from error
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
    raise BadConfigError(Problem(f"port {port}", "no port of this machine is free"))
