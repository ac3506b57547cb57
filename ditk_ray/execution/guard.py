"""The guard: a small process that owns one job's processes and lets none survive.

The guard forks the job, which leads a process group of its own, and then only
waits: for the job to end, or for its owner to say stop or to vanish (the
connection closes, even if the owner was killed with SIGKILL). In each case it
ends the whole group, TERM first and KILL after a moment. As a subreaper it also
inherits, and ends, what left the group or lost its parent. It pauses and
continues the group when its owner says so.

The messages between a job and its owner are JSON, not pickles: a job runs the user's code,
and what it says is data to be read, never code to be run.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import signal
import sys
import time
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, NoReturn

Message = dict[str, Any]

STOP = b"stop"
"""What the owner sends to have a process and all below it ended."""

PAUSE = b"pause"
"""What the owner sends to have them stand still, until `CONTINUE`."""

CONTINUE = b"continue"

TERM_SECONDS = 2.0
"""How long processes have between SIGTERM and SIGKILL."""

GIVE_UP_SECONDS = 30.0
"""After which a process that SIGKILL does not end (its driver or file server hangs) is left."""

_TURNS = {PAUSE: signal.SIGSTOP, CONTINUE: signal.SIGCONT}
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


class Channel:
    """The process's side of the connection to its owner."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def send(self, kind: str, **fields: Any) -> None:
        self._connection.send_bytes(json.dumps({"kind": kind, **fields}).encode())


def decode(data: bytes) -> Message:
    message: Message = json.loads(data)
    return message


Job = Callable[[Channel], None]


def keep(connection: Connection, job: Job) -> NoReturn:
    """Run `job` in a child, guard it to its end, send `exit` to the owner, and exit."""
    os.setsid()
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    guard = os.getpid()
    child = os.fork()
    if child == 0:
        _run(connection, job, guard)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.setpgid(child, child)  # in the child too: whichever of the two comes first
    status = _watch(connection, woken, child)
    status = _end_all(child, status)
    # An owner that has vanished needs no word.
    with contextlib.suppress(OSError):
        code = os.waitstatus_to_exitcode(status)
        Channel(connection).send("exit", code=code, grown=_growth_of_children())
    os._exit(0)


def _run(connection: Connection, job: Job, guard: int) -> NoReturn:
    """Be the job: the leader of its own group, which dies with the guard."""
    code = 1
    try:
        with contextlib.suppress(PermissionError):
            os.setpgid(0, 0)
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != guard:  # it died before the line above
            os._exit(1)
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        # What the job forks must not hold the connection open after it.
        os.register_at_fork(after_in_child=connection.close)
        job(Channel(connection))
        code = 0
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        _flush()
        os._exit(code)


def _watch(connection: Connection, woken: int, child: int) -> int | None:
    """Wait for the child's end and return its status, or None if it is to be ended."""
    while True:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return status
        ready = wait([connection, woken])
        if woken in ready:
            os.read(woken, 4096)
        if connection in ready and not _obey(connection, child):
            return None


def _obey(connection: Connection, group: int) -> bool:
    """Do what the owner says; False if that is to stop, or the owner has vanished."""
    try:
        order = connection.recv_bytes()
    except (EOFError, OSError):
        return False
    if order in _TURNS:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, _TURNS[order])
    return order != STOP


def _end_all(group: int, status: int | None) -> int:
    begun = time.monotonic()
    number = signal.SIGTERM
    while time.monotonic() < begun + GIVE_UP_SECONDS:
        for signalled in (number, signal.SIGCONT):  # what stands still hears no SIGTERM
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(group, signalled)
            for pid in _children():
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signalled)
        pause = time.monotonic() + 0.2
        while time.monotonic() < pause:
            try:
                pid, ended = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return status if status is not None else signal.SIGTERM
            if pid == group:
                status = ended
            if not pid:
                time.sleep(0.005)
        if time.monotonic() > begun + TERM_SECONDS:
            number = signal.SIGKILL
    print(f"processes that cannot be killed: {_children()}", file=sys.stderr, flush=True)
    return status if status is not None else signal.SIGKILL


def _children() -> list[int]:
    listing = Path(f"/proc/self/task/{os.getpid()}/children")
    try:
        return [int(pid) for pid in listing.read_text().split()]
    except OSError:  # not Linux: the process group is all there is
        return []


def _growth_of_children() -> int:
    """Return by how many bytes the largest process below outgrew what it was forked with."""
    own, largest = (
        resource.getrusage(who).ru_maxrss
        for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    return max(0, largest - own) * 1024


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
