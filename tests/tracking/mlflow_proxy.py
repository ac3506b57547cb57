"""A door to a real MLflow server that can refuse, hold, and shut."""

from __future__ import annotations

import threading
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

from tests.processes import PATIENCE


class Proxy(ThreadingHTTPServer):
    """Passes requests on, and remembers which runs' metric histories were asked for."""

    daemon_threads = True

    def __init__(self, server: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.server = server
        self.asked: list[str] = []
        self.refused: set[str] = set()
        self.held: set[str] = set()
        self.is_gone = False
        self.opened = threading.Event()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def shut(self) -> None:
        """Answer nobody from now on."""
        self.is_gone = True
        self.opened.set()
        self.shutdown()
        self.server_close()

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing of clients that were killed."""


class _Handler(BaseHTTPRequestHandler):
    server: Proxy

    def do_GET(self) -> None:
        self._pass_on(None)

    def do_POST(self) -> None:
        self._pass_on(self.rfile.read(int(self.headers["Content-Length"])))

    def log_message(self, format: str, *args: object) -> None:
        """Write nothing."""

    def _pass_on(self, body: bytes | None) -> None:
        proxy, parts = self.server, urlsplit(self.path)
        if parts.path.endswith("/metrics/get-history"):
            (run,) = parse_qs(parts.query)["run_id"]
            proxy.asked.append(run)
            if run in proxy.refused:
                self._answer(400, b'{"error_code": "BAD_REQUEST", "message": "not this one"}')
                return
            if run in proxy.held:
                proxy.opened.wait(60 * PATIENCE)
        if proxy.is_gone:
            self.close_connection = True
            return
        headers = {"Content-Type": self.headers.get("Content-Type", "application/json")}
        request = urllib.request.Request(
            proxy.server + self.path, body, headers, method=self.command
        )
        try:
            with urllib.request.urlopen(request) as answer:
                self._answer(answer.status, answer.read())
        except urllib.error.HTTPError as error:
            self._answer(error.code, error.read())

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
