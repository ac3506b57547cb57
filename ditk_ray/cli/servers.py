"""Running a third-party web server until Ctrl-C, and leaving nothing of it behind."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import webbrowser
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from ditk_ray.cli.flags import Command
from ditk_ray.cli.output import note
from ditk_ray.config.options import option, port
from ditk_ray.errors import BadConfigError, DitkRayError, Problem
from ditk_ray.record.trial_folder import tail

TICK_SECONDS = 5.0
_START_SECONDS = 180.0
_END_SECONDS = 5.0
_LOG_LINES = 20
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_PR_SET_PDEATHSIG = 1
_EVERYWHERE = ("0.0.0.0", "::")
_PORTS_TRIED = 100


@dataclass(frozen=True)
class Address:
    """A host and a port to listen at."""

    host: str
    port: int

    @property
    def is_loopback(self) -> bool:
        return self.host in ("localhost", "::1") or self.host.startswith("127.")

    @property
    def url(self) -> str:
        host = socket.gethostname() if self.host in _EVERYWHERE else self.host
        return f"http://{_bracketed(host)}:{self.port}"

    def names(self) -> list[str]:
        """Return the names that a browser may know the machine by, as URLs have them."""
        names = ["localhost", "127.0.0.1", "::1", self.host]
        if self.host in _EVERYWHERE:
            names[-1:] = [socket.gethostname(), socket.getfqdn()]
            with contextlib.suppress(OSError), socket.socket(type=socket.SOCK_DGRAM) as sock:
                sock.connect(("192.0.2.1", 9))  # sends nothing; finds the outgoing address
                names.append(str(sock.getsockname()[0]))
        return [_bracketed(name) for name in dict.fromkeys(names)]


def choose_address(host: str, wanted: int | None, usual: int) -> Address:
    """Return where to listen: at the wanted port, else at the first free one from `usual` on.

    Raises `BadConfigError` if the host is not this machine or the port cannot be had.
    """
    first = wanted or usual
    ports = range(first, min(first + _PORTS_TRIED, 65536))
    free = next((port for port in ports if _is_free(host, port)), None)
    if free is None or wanted not in (None, free):
        hint = f"{free} is free" if free else ""
        raise BadConfigError(Problem(f"--port {first}", "is taken", hint))
    return Address(host, free)


def _is_free(host: str, port: int) -> bool:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        socket.create_server((host, port), family=family).close()
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            return False
        what = f"cannot listen there at port {port}: {error.strerror or error}"
        raise BadConfigError(Problem(f"--host {host}", what)) from error
    return True


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def open_page(address: str) -> None:
    """Open a page, or say that there is no browser to open it with."""
    if not webbrowser.open(address):
        note(f"no browser was found; open {address} yourself")


class ServerCommand(Command):
    """A command that runs a web server until Ctrl-C, SIGTERM or a lost terminal."""

    host: str = option(
        "where to listen (default: %(default)s, for this machine only; "
        "0.0.0.0 is for anyone who can reach it)",
        "127.0.0.1",
    )
    port: int | None = option(
        "(default: 5000 for MLflow, 6006 for TensorBoard, or the next free one)", parse=port
    )
    open: bool = option("open it in a browser", False)
    verbose: bool = option("show the server's own log", False)

    def address(self, usual: int, others_can: str) -> Address:
        """Choose where to listen, and say what is worth knowing about it."""
        address = choose_address(self.host, self.port, usual)
        if self.port is None and address.port != usual:
            note(f"port {usual} is taken")
        if not address.is_loopback:
            note(f"anyone who can reach this machine can {others_can}")
        return address

    def serve(
        self,
        name: str,
        command: Sequence[str],
        address: Address,
        page: str,
        env: Mapping[str, str] | None = None,
        tick: Callable[[], object] = lambda: None,
    ) -> None:
        """Run a server, print its page once it answers, and end all of its processes.

        The command gets --host and --port; `tick` is called now and then. Raises `DitkRayError`,
        with the end of its log, if the server does not start or ends by itself.
        """
        note(f"starting {name} (some seconds)")
        command = [*command, "--host", address.host, "--port", str(address.port)]
        with interruptible(f"{name} is ended"), tempfile.NamedTemporaryFile() as log:
            process = _start(command, env, None if self.verbose else log)
            try:
                what = "did not start"
                if _comes_up(address, process):
                    note("Ctrl-C ends it")
                    print(page, flush=True)
                    if self.open:
                        open_page(page)
                    pause = TICK_SECONDS
                    while not _has_ended(process, pause):
                        begun = time.monotonic()
                        tick()
                        # Thousands of trials take a while to look through.
                        pause = max(TICK_SECONDS, 20 * (time.monotonic() - begun))
                    what = "ended"
                code = process.poll()
                how = "it does not answer" if code is None else f"it exited with code {code}"
                lines = [f"{name} {what} ({how})", *tail(Path(log.name), _LOG_LINES)]
                raise DitkRayError("\n    | ".join(lines))
            finally:
                _end_group(process)


def _start(
    command: Sequence[str], env: Mapping[str, str] | None, log: IO[bytes] | None
) -> subprocess.Popen[bytes]:
    """Start a server that ends with us; without a log, it writes to the standard error."""
    library = ctypes.CDLL(None)
    us = os.getpid()

    def die_with_us() -> None:
        library.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        if os.getppid() != us:  # it was too late for that
            os._exit(1)

    return subprocess.Popen(
        command,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=log or sys.stderr,
        stderr=subprocess.STDOUT,
        start_new_session=True,  # Ctrl-C is for us alone, and the group is its own
        preexec_fn=die_with_us,
    )


def _comes_up(address: Address, process: subprocess.Popen[bytes]) -> bool:
    deadline = time.monotonic() + _START_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            socket.create_connection((address.host, address.port), 5).close()
            return True
        time.sleep(0.1)
    return False


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """End the server and all that it started, TERM first; nothing may interrupt that."""
    _ignore_signals()
    with contextlib.suppress(ProcessLookupError):  # as soon as none of its helpers is left
        os.killpg(process.pid, signal.SIGTERM)
        deadline = time.monotonic() + _END_SECONDS
        while time.monotonic() < deadline:
            process.poll()
            os.killpg(process.pid, 0)
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _has_ended(process: subprocess.Popen[bytes], seconds: float) -> bool:
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(seconds)
    return process.returncode is not None


@contextlib.contextmanager
def interruptible(farewell: str) -> Iterator[None]:
    """Have Ctrl-C, SIGTERM and a lost terminal end what is inside, in good order."""
    earlier: dict[signal.Signals, Any] = {number: signal.getsignal(number) for number in _ENDING}
    for number in _ENDING:
        if number != signal.SIGHUP or earlier[number] != signal.SIG_IGN:  # nohup ignores it
            signal.signal(number, _interrupt)
    try:
        yield
    except KeyboardInterrupt:
        with contextlib.suppress(OSError):  # the terminal may be what was lost
            note(farewell)
    finally:
        for number in _ENDING:
            signal.signal(number, earlier[number])


def _interrupt(number: int, frame: Any) -> None:
    _ignore_signals()  # the next one must not come in between while all is ended
    raise KeyboardInterrupt


def _ignore_signals() -> None:
    for number in _ENDING:
        signal.signal(number, signal.SIG_IGN)
