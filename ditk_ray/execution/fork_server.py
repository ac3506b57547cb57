"""A node's warm fork server: DI-engine imported once, every trial forked from it.

Importing `ding.entry` takes seconds and hundreds of megabytes. This process does
it once for a sweep on a node; a trial is a fork of it, which starts in
milliseconds, shares its memory, and begins with clean global state.

Each connection to its socket says in its first message what it wants:

- `ANCHOR`: to keep the server alive for as long as the connection is open. A
  server without anchors leaves after a grace period, so that it never outlives
  its sweep for long, whatever killed that.
- `PRELOAD` and the names of modules: to import them for all forks to come.
- anything else is a `Pickled` function to run in a fork, under a guard; the
  connection becomes the fork's own.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib
import os
import pickle
import shutil
import socket
import sys
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, NoReturn

from ditk_ray.execution.guard import Channel, keep
from ditk_ray.execution.pickled_call import Pickled
from ditk_ray.util.locks import locked

ANCHOR = b"anchor"
PRELOAD = b"preload "
GRACE_SECONDS = 5.0
ENGINE = "ding.entry"
LAZY = ("torch._dynamo",)
"""What a job would import on its way: `torch.optim` wants dynamo, a second's work."""
LOCK_NAME = "lock"


def serve(listener: socket.socket, grace: float) -> None:
    """Answer connections until no anchor has been left for `grace` seconds."""
    anchors: set[Connection] = set()
    leave_at = time.monotonic() + grace
    while anchors or time.monotonic() < leave_at:
        for ready in wait([listener, *anchors], timeout=1.0):
            if ready is listener:
                connection = Connection(listener.accept()[0].detach())
                _answer(connection, listener, anchors)
            elif isinstance(ready, Connection):  # an anchor only ever closes
                anchors.discard(ready)
                ready.close()
                leave_at = time.monotonic() + grace
        _reap()


def _answer(connection: Connection, listener: socket.socket, anchors: set[Connection]) -> None:
    try:
        request = connection.recv_bytes()
    except (EOFError, OSError):
        connection.close()
        return
    if request == ANCHOR:
        anchors.add(connection)
        return
    if request.startswith(PRELOAD):
        _preload(request.removeprefix(PRELOAD).decode().split())
        connection.close()
        return
    if os.fork() == 0:
        listener.close()
        for anchor in anchors:
            anchor.close()
        _be_guard(connection, request)
    connection.close()


def _be_guard(connection: Connection, request: bytes) -> NoReturn:
    try:
        keep(connection, functools.partial(_call, request))
    except BaseException:
        sys.excepthook(*sys.exc_info())
    os._exit(1)


def _call(request: bytes, channel: Channel) -> None:
    # Unpickled in the job's own process: what the user's modules do at import
    # must not touch the guard, let alone the server.
    pickled: Pickled = pickle.loads(request)
    function: Callable[[Channel], Any] = pickled.unpack()
    function(channel)


def _reap() -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _preload(modules: Sequence[str]) -> None:
    """Import what trials need, and keep it out of the garbage collector's way.

    A collection would otherwise write to every object's header in every fork,
    and so copy the pages that they share.
    """
    if all(name in sys.modules for name in modules):
        return
    for name in modules:
        # A module that cannot be imported fails in the trial that wants it,
        # where its traceback is seen.
        with contextlib.suppress(Exception):
            importlib.import_module(name)
    gc.collect()
    gc.freeze()


def main(arguments: Sequence[str]) -> None:
    """Run a server on the socket that the first argument names; the second is its grace period."""
    path, *grace = arguments
    importlib.import_module(ENGINE)
    _preload(LAZY)
    listener = socket.socket(socket.AF_UNIX)
    # Under another name first: a socket that is visible can be connected to.
    listener.bind(f"{path}.new")
    listener.listen(128)
    Path(f"{path}.new").rename(path)
    serve(listener, float(grace[0]) if grace else GRACE_SECONDS)
    folder = Path(path).parent
    with locked(folder.parent / LOCK_NAME):  # no other process starts a new one there meanwhile
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main(sys.argv[1:])
