"""Running somebody else's web server for a person, and leaving nothing of it behind."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO, Any

from ditk_ray.errors import DitkRayError

_START_SECONDS = 180.0
_END_SECONDS = 5.0
_LOG_LINES = 20
_LOG_BYTES = 16384
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_PR_SET_PDEATHSIG = 1


class ServerFailedError(DitkRayError):
    """A server did not start, or ended by itself."""


@dataclass(frozen=True)
class Server:
    """What to run, and where it answers when it is up."""

    name: str
    command: Sequence[str]
    health: str
    env: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    is_verbose: bool = False
    """Whether its log goes to the standard error, and not only there if it fails."""


def serve(
    server: Server, ready: Callable[[], None], tick: Callable[[], None] = lambda: None
) -> None:
    """Run a server until Ctrl-C, SIGTERM or a lost terminal, and end all of its processes.

    `ready` is called once it answers, `tick` about once a second after that. Raises
    `ServerFailedError`, with the end of its log, if it ends by itself.
    """
    with _signals_end_us(), tempfile.TemporaryFile() as log:
        process = _start(server, log)
        try:
            _await_answer(server, process, log)
            ready()
            while process.poll() is None:
                tick()
                time.sleep(1)
            raise ServerFailedError(_explain(server, "ended", process, log))
        except KeyboardInterrupt:
            with contextlib.suppress(OSError):  # the terminal may be what was lost
                print(f"{server.name} is ended", file=sys.stderr, flush=True)
        finally:
            _end_group(process)


def _start(server: Server, log: IO[bytes]) -> subprocess.Popen[bytes]:
    library = ctypes.CDLL(None)
    us = os.getpid()

    def die_with_us() -> None:
        library.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        if os.getppid() != us:  # it was too late for that
            os._exit(1)

    return subprocess.Popen(
        server.command,
        env=server.env,
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr if server.is_verbose else log,
        stderr=subprocess.STDOUT if not server.is_verbose else None,
        start_new_session=True,  # Ctrl-C is for us alone, and the group is its own
        preexec_fn=die_with_us if sys.platform == "linux" else None,
    )


def _await_answer(server: Server, process: subprocess.Popen[bytes], log: IO[bytes]) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while not _answers(server.health):
        if process.poll() is not None:
            raise ServerFailedError(_explain(server, "did not start", process, log))
        if time.monotonic() > deadline:
            what = f"does not answer after {_START_SECONDS:.0f} s"
            raise ServerFailedError(_explain(server, what, process, log))
        time.sleep(0.1)


def _answers(url: str) -> bool:
    # A proxy knows nothing of this machine's own addresses.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=5) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def _explain(server: Server, what: str, process: subprocess.Popen[bytes], log: IO[bytes]) -> str:
    code = process.poll()
    left = "" if code is None else f" (it left with code {code})"
    log.seek(max(0, log.seek(0, 2) - _LOG_BYTES))
    lines = log.read().decode(errors="replace").splitlines()[-_LOG_LINES:]
    return "\n    | ".join([f"{server.name} {what}{left}", *lines])


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """End the server and all that it started, TERM first; nothing may interrupt that."""
    _ignore_signals()
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        if _is_gone(process):
            break
    process.wait()


def _is_gone(process: subprocess.Popen[bytes]) -> bool:
    """Wait a moment for the whole group to end."""
    deadline = time.monotonic() + _END_SECONDS
    while time.monotonic() < deadline:
        process.poll()
        try:
            os.killpg(process.pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.05)
    return False


@contextlib.contextmanager
def _signals_end_us() -> Iterator[None]:
    """Make SIGTERM and a lost terminal what Ctrl-C is; under nohup a lost terminal is none."""
    earlier: dict[signal.Signals, Any] = {number: signal.getsignal(number) for number in _ENDING}
    for number in _ENDING:
        if number != signal.SIGHUP or earlier[number] != signal.SIG_IGN:
            signal.signal(number, _interrupt)
    try:
        yield
    finally:
        for number in _ENDING:
            signal.signal(number, earlier[number])


def _interrupt(number: int, frame: Any) -> None:
    _ignore_signals()  # the next one must not come in between while all is ended
    raise KeyboardInterrupt


def _ignore_signals() -> None:
    for number in _ENDING:
        signal.signal(number, signal.SIG_IGN)
