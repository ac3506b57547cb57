"""The part of a kubelet that the API server asks for a port of a pod."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import threading
from collections.abc import Callable

from aiohttp import WSMsgType, web

from tests.kube.certificates import Certificate

FindPort = Callable[[str, int], int | str]
"""From a pod's name and a port of it to the real port on this machine, or why there is none."""

_DATA, _ERROR = b"\x00", b"\x01"


class ForwardServer:
    """Serves `/portForward/<namespace>/<pod>?port=N` over TLS, as websockets.

    The frames are the kubelet's: a byte for the channel (data, errors), and on each channel the
    port's number first.
    """

    def __init__(self, certificate: Certificate, find: FindPort) -> None:
        self._find = find
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._tls.load_cert_chain(certificate.certificate, certificate.key)
        self._open: set[web.WebSocketResponse] = set()
        self.served: list[str] = []
        """The pods that were asked for, one for each connection."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._runner, self.port = self._wait(self._start())

    def cut(self) -> None:
        """Break all connections."""
        self._wait(self._cut())

    def close(self) -> None:
        """Break all connections, and answer no more."""
        self.cut()
        self._wait(self._runner.cleanup())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def _wait(self, work):  # type: ignore[no-untyped-def]
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    async def _start(self) -> tuple[web.AppRunner, int]:
        app = web.Application()
        app.router.add_get("/portForward/{namespace}/{pod}", self._serve)
        runner = web.AppRunner(app, shutdown_timeout=1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=self._tls).start()
        return runner, int(runner.addresses[0][1])

    async def _cut(self) -> None:
        for each in list(self._open):
            if each._req is not None and each._req.transport is not None:
                each._req.transport.abort()

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        pod, port = request.match_info["pod"], int(request.query["port"])
        socket = web.WebSocketResponse(protocols=["v4.channel.k8s.io"], max_msg_size=0, timeout=0.5)
        await socket.prepare(request)
        self._open.add(socket)
        self.served.append(pod)
        try:
            number = port.to_bytes(2, "little")
            await socket.send_bytes(_DATA + number)
            await socket.send_bytes(_ERROR + number)
            await self._connect(socket, pod, port)
        except ConnectionError:
            pass  # whoever asked has gone
        finally:
            self._open.discard(socket)
            await socket.close()
        return socket

    async def _connect(self, socket: web.WebSocketResponse, pod: str, port: int) -> None:
        target = self._find(pod, port)
        try:
            if isinstance(target, str):
                raise OSError(target)
            reader, writer = await asyncio.open_connection("127.0.0.1", target)
        except OSError as error:
            said = f"error forwarding port {port} to pod {pod}: {error}"
            await socket.send_bytes(_ERROR + said.encode())
            return
        ways = [
            asyncio.ensure_future(_to_pod(socket, writer)),
            asyncio.ensure_future(_from_pod(reader, socket)),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            writer.close()
            await asyncio.gather(*ways, return_exceptions=True)


async def _to_pod(socket: web.WebSocketResponse, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        async for message in socket:
            if message.type is WSMsgType.BINARY and message.data[:1] == _DATA:
                writer.write(message.data[1:])
                await writer.drain()


async def _from_pod(reader: asyncio.StreamReader, socket: web.WebSocketResponse) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(32768):
            await socket.send_bytes(_DATA + data)
