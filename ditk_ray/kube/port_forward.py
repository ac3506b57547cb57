"""A port of this machine's loopback that leads to a Service, over websockets to its pods."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable

import aiohttp

from ditk_ray.errors import (
    BadConfigError,
    KubeError,
    KubeNotFoundError,
    KubeUnreachableError,
    Problem,
)
from ditk_ray.kube.connection import Kube
from ditk_ray.kube.http_client import refusal, unreachable
from ditk_ray.kube.objects import ENDPOINTS

LOOPBACK = "127.0.0.1"
"""Whoever reaches a dashboard runs code in the cluster: nothing else is ever listened at."""

PATIENCE = 20.0  # seconds for which a connection waits for a pod that is being replaced
# Each message begins with the number of its channel: data, or what went wrong.
_PROTOCOL = "v4.channel.k8s.io"
_DATA, _ERROR = b"\0", b"\1"
_PORT_BYTES = 2
_OPEN_SECONDS = 15.0  # for the API server to reach the pod's node
_LINGER_SECONDS = 10.0  # of silence of an answer, once the local side has sent all it has
_CLOSING = aiohttp.ClientWSTimeout(ws_close=1.0)
_PORTS_TRIED = 100
_CHUNK = 65536
_LOOK_SECONDS = 0.5


class PortForward(contextlib.AbstractContextManager["PortForward"]):
    """Listens at a port of loopback and carries each connection to a pod of a Service.

    The port is the wanted one, or the next that is free. Every connection is a stream of its
    own, so one that breaks harms no other, and the next finds the pod that is ready then.
    `tell` is called, from another thread, with what goes wrong. Ends with `close`.
    """

    def __init__(self, pods: ServicePods, port: int, tell: Callable[[str], None]) -> None:
        self._pods = pods
        self._tell = tell
        self._told = ""
        self._open: set[asyncio.Task[None]] = set()
        self._server = _listen(port)
        self.port = int(self._server.getsockname()[1])
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="forward", daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self.port}"

    def close(self) -> None:
        with contextlib.suppress(RuntimeError):  # it is closed already
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def __exit__(self, *raised: object) -> None:
        self.close()

    def _run(self) -> None:
        with contextlib.closing(self._loop):
            self._loop.run_until_complete(self._serve())

    async def _serve(self) -> None:
        async with await asyncio.start_server(self._accept, sock=self._server):
            await self._stop.wait()
            for task in self._open:
                task.cancel()
            await asyncio.gather(*self._open, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = self._loop.create_task(self._carry(reader, writer))
        self._open.add(task)
        task.add_done_callback(self._open.discard)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with self._pods.connect(PATIENCE) as pod:
                self._say(await _relay(reader, writer, pod))
        except KubeError as error:
            self._say(str(error))
        finally:
            with contextlib.suppress(OSError, TimeoutError):
                await _end(reader, writer)
            writer.close()

    def _say(self, text: str) -> None:
        """Report what goes wrong, but not repeatedly: browsers try a lot."""
        if text and text != self._told:
            self._tell(f"{self._pods.service}: {text}")
        self._told = text


async def _relay(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    pod: aiohttp.ClientWebSocketResponse,
) -> str:
    """Carry bytes until either side has ended; return what the pod's node says went wrong.

    A pod's connection cannot be closed by half: a local side that will send no more is
    answered until the pod closes, or is silent for a while.
    """
    now = asyncio.get_running_loop().time
    said = b""
    to_skip = {_DATA: _PORT_BYTES, _ERROR: _PORT_BYTES}  # each begins with the port it is for

    async def send() -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(_CHUNK):
                await pod.send_bytes(_DATA + data)
        limit.reschedule(now() + _LINGER_SECONDS)

    with contextlib.suppress(OSError, TimeoutError):
        async with asyncio.timeout(None) as limit:
            sending = asyncio.create_task(send())
            try:
                async for message in pod:
                    if message.type is aiohttp.WSMsgType.ERROR:
                        return str(message.data)
                    channel, data = message.data[:1], message.data[1:]
                    skipped = min(to_skip.get(channel, 0), len(data))
                    to_skip[channel] = to_skip.get(channel, 0) - skipped
                    if channel == _ERROR:
                        said += data[skipped:]
                        continue
                    writer.write(data[skipped:])
                    await writer.drain()
                    if sending.done():
                        limit.reschedule(now() + _LINGER_SECONDS)
            finally:
                sending.cancel()
    return said.decode(errors="replace").strip()


async def _end(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Read what is left unread: closed with that, a connection is reset, not ended."""
    writer.write_eof()
    async with asyncio.timeout(_LOOK_SECONDS):
        while await reader.read(_CHUNK):
            pass


def _listen(port: int) -> socket.socket:
    for number in [*range(port, min(port + _PORTS_TRIED, 65536)), 0]:
        try:
            return socket.create_server((LOOPBACK, number))
        except PermissionError as error:
            raise BadConfigError(
                Problem(f"port {port}", "is for root alone", "choose one from 1024 on")
            ) from error
        except OSError:  # it is taken
            continue
    raise BadConfigError(Problem(f"port {port}", "no port of this machine is free"))


class ServicePods:
    """The pods behind a Service, as its Endpoints have them.

    `port` is the name of the wanted port, and its number where none has the name.
    """

    def __init__(self, kube: Kube, service: str, port: tuple[str, int]) -> None:
        self.service = service
        self._kube = kube
        self._port = port

    def check(self, patience: float) -> None:
        """Connect once; raises a KubeError if that is not possible within `patience` seconds."""

        async def run() -> None:
            async with self.connect(patience):
                pass

        asyncio.run(run())

    @contextlib.asynccontextmanager
    async def connect(self, patience: float) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
        """Connect to a pod that is ready, for which `patience` seconds may be waited.

        A pod that is gone is replaced by the next. Raises a KubeError.
        """
        end = time.monotonic() + patience
        async with contextlib.AsyncExitStack() as stack:
            while True:
                try:
                    pod, port = await asyncio.to_thread(self._find)
                    opened = await stack.enter_async_context(_open(self._kube, pod, port))
                    break
                except (KubeNotFoundError, KubeUnreachableError):
                    if time.monotonic() + _LOOK_SECONDS > end:
                        raise
                await asyncio.sleep(_LOOK_SECONDS)
            yield opened

    def _find(self) -> tuple[str, int]:
        name, number = self._port
        chosen = f"metadata.name={self.service}"
        for found in self._kube.objects(ENDPOINTS).list(fields=chosen, patience=0):
            for subset in found.get("subsets") or []:
                ports = {each.get("name"): each["port"] for each in subset.get("ports") or []}
                for address in subset.get("addresses") or []:
                    if address.get("targetRef", {}).get("kind") == "Pod":
                        return str(address["targetRef"]["name"]), int(ports.get(name, number))
        raise KubeUnreachableError(f"no pod behind the Service {self.service} is ready")


@contextlib.asynccontextmanager
async def _open(kube: Kube, pod: str, port: int) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
    """Have a request become a websocket; raises a KubeError if the server refuses or is away."""
    call = kube.pods.call("GET", pod, "portforward", query={"ports": str(port)})

    async def check(response: aiohttp.ClientResponse) -> None:
        if response.status != 101:
            raise refusal(call, response.status, await response.read())

    async with aiohttp.ClientSession(raise_for_status=check) as session:
        try:
            async with asyncio.timeout(_OPEN_SECONDS):
                url, options = kube.http.websocket_options(call)
                opened = await session.ws_connect(
                    url, protocols=[_PROTOCOL], max_msg_size=0, timeout=_CLOSING, **options
                )
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise unreachable(call, kube.host, error) from None
        async with opened:
            yield opened
