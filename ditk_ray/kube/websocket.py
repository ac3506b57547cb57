"""Turning a request to the API server into a websocket, and the frames that go over it."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from ditk_ray.kube.refusals import refusal, unreachable

if TYPE_CHECKING:
    from kubernetes.client.api_client import ApiClient

    from ditk_ray.kube.wire import Call

OPEN_SECONDS = 15.0
"""The API server has to reach the pod's node within this."""

_LONG, _LONGER = 126, 127


class Opcode(IntEnum):
    """What a frame is."""

    CONTINUED = 0
    TEXT = 1
    BINARY = 2
    CLOSE = 8
    PING = 9
    PONG = 10


@dataclass(frozen=True)
class Frame:
    """A frame as it came."""

    opcode: int
    payload: bytes


class FrameReader:
    """Finds the frames of a server in bytes that come in any pieces."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Take what came, and yield the frames that are whole by now."""
        self._rest += data
        while (frame := self._next()) is not None:
            yield frame

    def _next(self) -> Frame | None:
        head = self._head()
        if head is None:
            return None
        start, size = head
        if len(self._rest) < start + size:
            return None
        frame = Frame(self._rest[0] & 0x0F, bytes(self._rest[start : start + size]))
        del self._rest[: start + size]
        return frame

    def _head(self) -> tuple[int, int] | None:
        """Return where the payload begins and its size; a server's frames have no mask."""
        if len(self._rest) < 2:
            return None
        size = self._rest[1] & 0x7F
        if size < _LONG:
            return 2, size
        start = 4 if size == _LONG else 10
        if len(self._rest) < start:
            return None
        return start, int.from_bytes(self._rest[2:start], "big")


def frame_bytes(opcode: Opcode, payload: bytes) -> bytes:
    """Return a client's frame, masked as the protocol wants it."""
    from websocket import ABNF

    return bytes(ABNF.create_frame(payload, int(opcode)).format())


def open_websocket(client: ApiClient, call: Call, protocol: str) -> socket.socket:
    """Send a request to be upgraded; return the socket over which frames go from then on.

    Raises a KubeError if the server refuses, or does not answer.
    """
    from websocket import WebSocket, WebSocketBadStatusException, WebSocketException

    _, url, headers, *_ = client.param_serialize(
        call.asked.method,
        call.path,
        query_params=list(call.query.items()),
        auth_settings=["BearerToken"],
    )
    known = {key.lower(): value for key, value in headers.items()}
    sent = [f"Authorization: {known['authorization']}"] if "authorization" in known else []
    opened = WebSocket(sslopt=_tls_options(client.configuration), skip_utf8_validation=True)
    try:
        opened.connect(
            url.replace("http", "ws", 1),
            header=sent,
            subprotocols=[protocol],
            timeout=OPEN_SECONDS,
            suppress_origin=True,
            **_proxy_options(client.configuration),
        )
    except WebSocketBadStatusException as error:
        raise refusal(call.asked, error.status_code, error.resp_body or b"") from None
    except (WebSocketException, OSError) as error:
        raise unreachable(call.asked, client.configuration.host, error) from None
    assert opened.sock is not None
    return opened.sock


def _tls_options(configuration: Any) -> dict[str, Any]:
    options = {
        "certfile": configuration.cert_file,
        "keyfile": configuration.key_file,
        "ca_certs": configuration.ssl_ca_cert,
        "server_hostname": configuration.tls_server_name,
        "check_hostname": configuration.assert_hostname,
        "cert_reqs": ssl.CERT_REQUIRED,
    }
    if not configuration.verify_ssl:
        options |= {"cert_reqs": ssl.CERT_NONE, "check_hostname": False}
    return {key: value for key, value in options.items() if value is not None}


def _proxy_options(configuration: Any) -> dict[str, Any]:
    if not configuration.proxy:
        return {}
    proxy = urlsplit(configuration.proxy)
    options: dict[str, Any] = {"http_proxy_host": proxy.hostname, "http_proxy_port": proxy.port}
    if proxy.username:
        options["http_proxy_auth"] = (proxy.username, proxy.password or "")
    if configuration.no_proxy:
        options["http_no_proxy"] = configuration.no_proxy.split(",")
    return options
