"""Using a node's fork server: start it if need be, and run jobs in forks of it."""

from __future__ import annotations

import contextlib
import os
import pickle
import shutil
import stat
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from multiprocessing.connection import Client, Connection
from pathlib import Path
from typing import Any

import ditk_ray
from ditk_ray.config.resources import THREAD_VARIABLES
from ditk_ray.errors import BadConfigError, EngineMissingError, Problem
from ditk_ray.execution.fork_server import ANCHOR, LOCK_NAME, PRELOAD
from ditk_ray.execution.guard import CONTINUE, PAUSE, STOP, Channel, Message, decode
from ditk_ray.execution.pickled_call import Pickled
from ditk_ray.util.locks import locked

START_SECONDS = 120.0
SHARED_KEY = "DITK_RAY_FORK_SERVER"
"""The environment variable by which several sweeps share one server. It has the environment of the
first of them, and leaves a while after the last one."""
SHARED_SECONDS = 120.0
"""How long a shared server waits for the next sweep."""
_LOG_TAIL = 12
_LONGEST_FOLDER = 60
"""The path of a Unix socket may have about a hundred characters in all."""
_SERVER = (sys.executable, "-W", "ignore", "-m", "ditk_ray.execution.fork_server")


class ForkClient:
    """The fork server of this node for one sweep, shared by all of its actors.

    `key` names the sweep: whoever joins with the same key on the same node gets
    the same server, and the first one starts it. The server lives while anybody
    has joined and a few seconds more. As a context it is joined in the
    background, since starting takes seconds, and left in the end.
    """

    def __init__(self, key: str | None = None) -> None:
        self._is_shared = key is None and bool(os.environ.get(SHARED_KEY))
        self.key = key or os.environ.get(SHARED_KEY) or uuid.uuid4().hex[:12]
        self._folder = runtime_folder() / self.key
        self._anchor: Connection | None = None
        self._joining = threading.Lock()
        self._server: subprocess.Popen[bytes] | None = None
        self._is_closed = False
        self._preloaded: tuple[str, ...] = ()

    def __enter__(self) -> ForkClient:
        def join_quietly() -> None:
            # The next one to join will see it; after the end it does not matter.
            with contextlib.suppress(EngineMissingError, OSError):
                self.join()

        threading.Thread(target=join_quietly, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        """End the server at once, if it is here for this sweep alone; what it forked continues."""
        self._is_closed = True
        self.leave()
        if self._server is not None and not self._is_shared:
            self._server.terminate()
            self._server.wait()
            shutil.rmtree(self._folder, ignore_errors=True)

    def join(self) -> None:
        """Make sure that the server runs, and keep it running until `leave`."""
        with self._joining:
            if self._anchor is not None and self._anchor.poll():
                self.leave()  # the server is gone: an anchor is never written to
            if self._anchor is None:
                self._anchor = self._connect(ANCHOR)
                self._preload()  # it may have taken the place of another server

    def preload(self, modules: Iterable[str]) -> None:
        """Have all later jobs begin with these modules imported, where they can be."""
        self._preloaded += tuple(modules)
        if self._anchor is not None:  # else it is done on joining
            self._preload()

    def _preload(self) -> None:
        if self._preloaded:
            self._connect(PRELOAD + " ".join(self._preloaded).encode()).close()

    def leave(self) -> None:
        if self._anchor is not None:
            self._anchor.close()
            self._anchor = None

    def run(self, job: Callable[[Channel], Any], python_path: Sequence[str] = ()) -> GuardedProcess:
        """Run `job` in a fork of the server and return a handle to it.

        `python_path` are the folders that the job's own modules are in.
        """
        self.join()
        return GuardedProcess(self._connect(pickle.dumps(Pickled.pack(job, python_path))))

    def _connect(self, first: bytes) -> Connection:
        for _ in range(0 if self._is_closed else 4):
            with contextlib.suppress(OSError):
                connection = _open(self._socket)
                connection.send_bytes(first)
                return connection
            self._ensure_running()
        raise EngineMissingError(f"the fork server in {self._folder} does not stay up")

    @property
    def _socket(self) -> Path:
        return self._folder / "socket"

    def _ensure_running(self) -> None:
        with locked(self._folder.parent / LOCK_NAME):
            if self._is_closed:  # while others were starting theirs: this one would never be ended
                return
            with contextlib.suppress(OSError):
                _open(self._socket).close()
                return
            self._folder.mkdir(mode=0o700, exist_ok=True)
            self._socket.unlink(missing_ok=True)
            Path(f"{self._socket}.new").unlink(missing_ok=True)
            self._start()

    def _start(self) -> None:
        log = self._folder / "server.log"
        with log.open("wb") as output:
            self._server = server = subprocess.Popen(
                [*_SERVER, str(self._socket), *([str(SHARED_SECONDS)] if self._is_shared else [])],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=self._folder,
                env=_server_environment(),
                start_new_session=True,
            )
        deadline = time.monotonic() + START_SECONDS
        while not self._socket.exists():
            if server.poll() is not None:
                raise EngineMissingError(_why_not(log))
            if time.monotonic() > deadline:
                server.kill()
                raise EngineMissingError(f"importing DI-engine took over {START_SECONDS:.0f} s")
            time.sleep(0.02)


class GuardedProcess:
    """A running job: its messages, and the means to pause it and to end it with all below it."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.exit_code: int | None = None
        """Once it has ended; a negative one is the signal that ended it."""
        self.grown = 0
        """By how many bytes it had grown since its fork, at most, when it has ended."""
        self.has_ended = False
        self._stopped = False

    def receive(self) -> Message | None:
        """Return the next message, waiting for it; None once the job has ended.

        Without an `exit_code` then, it is unknown how: its guard was killed, too.
        """
        while not self.has_ended:
            try:
                message = decode(self.connection.recv_bytes())
            except (EOFError, OSError):
                self.has_ended = True
                break
            if message["kind"] != "exit":
                return message
            self.has_ended = True
            self.exit_code = int(message["code"])
            self.grown = int(message["grown"])
        return None

    def pause(self) -> None:
        self._send(PAUSE)

    def resume(self) -> None:
        self._send(CONTINUE)

    def stop(self) -> None:
        """End the job and wait until nothing of it is left."""
        if not self.has_ended and not self._stopped:
            self._stopped = True
            self._send(STOP)
        while self.receive() is not None:
            pass
        self.connection.close()

    def _send(self, order: bytes) -> None:
        with contextlib.suppress(OSError):  # it has just ended, as `receive` will say
            self.connection.send_bytes(order)


def runtime_folder() -> Path:
    """Return the folder of this user on this machine for what runs at the moment; makes it.

    Raises `BadConfigError` if others can write there: they could have us run what they like.
    """
    above = Path(tempfile.gettempdir())
    if len(str(above)) > _LONGEST_FOLDER:
        above = Path("/tmp")
    folder = above / f"ditk_ray-{os.getuid()}"
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    is_own = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()
    if not is_own or found.st_mode & 0o022:
        what = "belongs to another user or is writable by others"
        raise BadConfigError(Problem(str(folder), what, "remove it, or set TMPDIR"))
    return folder


def _open(path: Path) -> Connection:
    return Client(str(path), family="AF_UNIX")


def _server_environment() -> dict[str, str]:
    """One numeric thread, no CUDA before the fork, and this package importable."""
    environment = os.environ | dict.fromkeys(THREAD_VARIABLES, "1")
    # A process that has initialised CUDA cannot be forked: ask the driver
    # library whether there is a GPU, not the CUDA runtime.
    environment["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
    environment.pop("CUDA_VISIBLE_DEVICES", None)
    root = str(Path(ditk_ray.__file__).resolve().parents[1])
    environment["PYTHONPATH"] = os.pathsep.join(
        [root, *filter(None, [environment.get("PYTHONPATH")])]
    )
    return environment


def _why_not(log: Path) -> str:
    lines = log.read_text(errors="replace").splitlines()
    tail = "\n".join(f"    {line}" for line in lines[-_LOG_TAIL:])
    return (
        f"DI-engine cannot be imported by {sys.executable}:\n{tail}\n"
        "`make setup` makes an environment in which it works"
    )
