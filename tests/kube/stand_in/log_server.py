"""The part of a kubelet that the API server asks for logs."""

from __future__ import annotations

import contextlib
import datetime
import socket
import ssl
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.kube.certificates import Certificate
from tests.kube.stand_in.pod_log import LogQuery, PodLog

FindLog = Callable[[str, str], PodLog | str]
"""From a pod's and a container's name to the log, or to the reason why there is none yet."""


class LogServer:
    """Serves `/containerLogs/<namespace>/<pod>/<container>` over TLS."""

    def __init__(self, certificate: Certificate, find: FindLog) -> None:
        self._server = _Server(certificate, find)
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.05,), daemon=True
        )
        self._thread.start()

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def cut(self) -> None:
        """Break all connections."""
        self._server.cut()

    def close(self) -> None:
        """Break all connections, and answer no more."""
        self._server.shutdown()
        self._server.server_close()
        self._server.cut()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def __init__(self, certificate: Certificate, find: FindLog) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.find = find
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._tls.load_cert_chain(certificate.certificate, certificate.key)
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()

    def get_request(self) -> tuple[socket.socket, Any]:
        plain, address = super().get_request()
        # The handshake is the handler's, whose thread may wait.
        secured = self._tls.wrap_socket(plain, server_side=True, do_handshake_on_connect=False)
        with self._lock:
            self._open.add(secured)
        return secured, address

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._open.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Readers go when they like; that is no error."""

    def cut(self) -> None:
        with self._lock:
            for connection in self._open:
                with contextlib.suppress(OSError):
                    socket.socket.shutdown(connection, socket.SHUT_RDWR)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def do_GET(self) -> None:
        asked = urlsplit(self.path)
        match asked.path.strip("/").split("/"):
            case ["containerLogs", _, pod, container]:
                found = self.server.find(pod, container)
            case _:
                return self._refuse(404, "not served by this stand-in")
        if isinstance(found, str):
            return self._refuse(400, found)
        self._send(found, _query(asked.query))

    def _refuse(self, code: int, reason: str) -> None:
        body = reason.encode()
        self.send_response(code)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _send(self, log: PodLog, query: LogQuery) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for piece in log.read(query):
            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
        self.wfile.write(b"0\r\n\r\n")

    def log_message(self, *arguments: Any) -> None:
        """Say nothing."""


def _query(text: str) -> LogQuery:
    given = {name: values[-1] for name, values in parse_qs(text).items()}
    since = 0
    if "sinceTime" in given:
        since = _nanoseconds(datetime.datetime.fromisoformat(given["sinceTime"]))
    elif "sinceSeconds" in given:
        ago = datetime.timedelta(seconds=int(given["sinceSeconds"]))
        since = _nanoseconds(datetime.datetime.now(datetime.UTC) - ago)
    return LogQuery(
        follow=given.get("follow") == "true",
        timestamps=given.get("timestamps") == "true",
        since=since,
        tail=int(given["tailLines"]) if "tailLines" in given else None,
        limit=int(given["limitBytes"]) if "limitBytes" in given else None,
    )


def _nanoseconds(at: datetime.datetime) -> int:
    since = at - datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    return (since.days * 86400 + since.seconds) * 1_000_000_000 + since.microseconds * 1000
