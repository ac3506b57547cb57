"""A wrapped command as its Ray worker sees it: started under a keeper, read, and ended."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path

import ditk_ray
from ditk_ray.cluster.commands.command_cores import CoreLease
from ditk_ray.trial.warm_node import NodeProcess

_GATHER_SECONDS = 0.05
"""How long output may come in before it is passed on: what prints much is passed on in bulk."""
_WAIT_SECONDS = 0.5
_PIPE_BYTES = 1024 * 1024
_KEEPER = (sys.executable, "-m", "ditk_ray.cluster.commands.command_keeper")


@dataclass(frozen=True)
class CommandOrder:
    """What a keeper has to know of its command; `memory` is in bytes."""

    arguments: Sequence[str]
    folder: str
    env: Mapping[str, str]
    cores: Sequence[int]
    memory: int | None


class CommandProcess:
    """A running command, which cannot outlive the process that holds this.

    However that process ends, the keeper sees the connection close, and ends the command with
    all that it started.
    """

    def __init__(self, order: CommandOrder, lease: CoreLease) -> None:
        self.why = ""
        """Why it could not be started, if it could not."""
        self._pid: int | None = None
        self._output, writing = os.pipe()
        with contextlib.suppress(OSError):  # a user may have used up what all pipes may hold
            fcntl.fcntl(self._output, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        ours, theirs = socket.socketpair()
        try:
            _start_keeper(theirs.fileno(), lease.descriptor, writing)
        finally:
            theirs.close()
            os.close(writing)
        connection = Connection(ours.detach())
        connection.send_bytes(json.dumps(asdict(order)).encode())
        self._process = NodeProcess(connection)

    @property
    def exit_code(self) -> int | None:
        """How it ended; None while it runs, and if nobody knows, for its keeper was killed."""
        return self._process.exit_code

    def output(self) -> Iterator[bytes]:
        """Return what it prints, to both of its streams, as it comes; ends with the command."""
        sources: list[int | Connection] = [self._process.connection, self._output]
        while not self._process.has_ended:
            # Not for ever: a worker that is to leave off is interrupted between two waits.
            ready = wait(sources, timeout=_WAIT_SECONDS)
            if self._output in ready:
                time.sleep(_GATHER_SECONDS)
                if data := os.read(self._output, _PIPE_BYTES):
                    yield data
                else:  # it has closed both streams, and may well go on
                    sources.remove(self._output)
            elif ready:
                self._hear()
        yield from self._rest()

    def stop(self) -> None:
        """End the command, if it still runs, and wait until nothing of it is left."""
        self._process.stop()
        if self._process.exit_code is None and self._pid is not None:
            # Its keeper was killed, and the command with it: this is for what that had started.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._pid, signal.SIGKILL)
        os.close(self._output)

    def _hear(self) -> None:
        message = self._process.receive()
        if message is None:
            return
        if message["kind"] == "started":
            self._pid = int(message["pid"])
        else:
            self.why = str(message["why"])

    def _rest(self) -> Iterator[bytes]:
        """Return what was printed last; nothing is waited for."""
        os.set_blocking(self._output, False)
        with contextlib.suppress(BlockingIOError):
            while data := os.read(self._output, _PIPE_BYTES):
                yield data


def _start_keeper(connection: int, lock: int, writing: int) -> None:
    root = str(Path(ditk_ray.__file__).resolve().parents[1])
    known = os.environ.get("PYTHONPATH")
    subprocess.run(
        [*_KEEPER, str(connection), str(lock)],
        stdin=subprocess.DEVNULL,
        stdout=writing,
        stderr=writing,
        pass_fds=(connection, lock),
        env={**os.environ, "PYTHONPATH": os.pathsep.join([root, *filter(None, [known])])},
        check=True,
    )
