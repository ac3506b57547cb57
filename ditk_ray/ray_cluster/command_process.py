"""Commands as guarded processes of this node; they print, and leave nothing behind.

`python -m ditk_ray.ray_cluster.command_process CONNECTION HELD` is the guard of one: a trial's,
around a program. Its owner starts it with two open files: the connection to it, over which the
first message is the task, and one that is held open to the end. Neither reaches the command.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Literal, NoReturn

import ditk_ray
from ditk_ray.execution.executor import Ended, Event, Executor, Printed, Run, Started
from ditk_ray.execution.fork_client import GuardedProcess
from ditk_ray.execution.guard import Channel, decode, keep

_GATHER_SECONDS = 0.05  # so that what prints much is passed on in bulk
_PIPE_BYTES = 1024 * 1024


@dataclass(frozen=True)
class CommandTask:
    """A program, where it runs, and what it may use: all cores if none are named."""

    arguments: list[str]
    folder: str
    env: dict[str, str]
    cores: Sequence[int] = ()
    memory: int | None = None

    def run(self, channel: Channel) -> NoReturn:
        """Turn this process into the program.

        Sends `started` with the process id, or `unstartable` with the reason.
        """
        channel.send("started", pid=os.getpid())
        program = self.arguments[0]
        try:
            os.chdir(self.folder)
            if self.cores:
                os.sched_setaffinity(0, self.cores)
            if self.memory is not None:
                resource.setrlimit(resource.RLIMIT_DATA, (self.memory, self.memory))
            # What this Python ignores, and what a worker may block, is not for the program.
            for number in (signal.SIGPIPE, signal.SIGXFSZ):
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, ())
            os.execvpe(program, self.arguments, self.env)
        except OSError as error:
            why = f"{program} cannot be started in {self.folder}: {error.strerror}"
            channel.send("unstartable", why=why)
            is_missing = isinstance(error, FileNotFoundError)
            raise SystemExit(127 if is_missing else 126) from None  # as a shell has them


class CommandExecutor(Executor[Any]):
    """Runs commands on this node, attached to this process.

    The file `held` stays open as long as there may be anything of them.
    """

    restores = False

    def __init__(self, held: int) -> None:
        self._held = held

    def start(self, task: CommandTask) -> CommandProcess:
        return CommandProcess(task, self._held)

    def listen(self, runs: Sequence[Run], seconds: float) -> list[tuple[Run, Event]]:
        known = [run for run in runs if isinstance(run, CommandProcess)]
        sources = {source: run for run in known for source in run.sources}
        ready = {sources[one] for one in wait(list(sources), seconds)}  # type: ignore[index]
        if ready:
            time.sleep(_GATHER_SECONDS)
        return [(run, event) for run in ready for event in run.receive()]


class CommandProcess(Run):
    """A running command, which cannot outlive the process that holds this.

    However that process ends, the guard sees the connection close, and ends the command with
    all that it started.
    """

    def __init__(self, task: CommandTask, held: int) -> None:
        self._name = task.arguments[0]
        self._error = ""
        self._pid: int | None = None
        output, writing = os.pipe()
        with contextlib.suppress(OSError):  # a user may have used up what all pipes may hold
            fcntl.fcntl(output, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        os.set_blocking(output, False)
        self._output = os.fdopen(output, "rb", buffering=0)
        ours, theirs = socket.socketpair()
        files = (theirs.fileno(), held)
        try:
            subprocess.run(
                [sys.executable, "-m", "ditk_ray.ray_cluster.command_process", *map(str, files)],
                stdin=subprocess.DEVNULL,
                stdout=writing,
                stderr=writing,
                pass_fds=files,
                cwd=Path(ditk_ray.__file__).resolve().parents[1],  # where the module is found
                check=True,
            )
        finally:
            theirs.close()
            os.close(writing)
        connection = Connection(ours.detach())
        connection.send_bytes(json.dumps(asdict(task)).encode())
        self._process = GuardedProcess(connection)
        self.sources: list[int | Connection] = [connection, output]
        """What is to be waited for, until it has ended."""

    def __str__(self) -> str:
        return self._name

    def receive(self) -> Iterator[Event]:
        """Yield what has happened, without waiting for more."""
        connection = self._process.connection
        while not self._process.has_ended and connection.poll():
            message = self._process.receive()
            if message is not None and message["kind"] == "started":
                self._pid = int(message["pid"])
                yield Started()
            elif message is not None:
                self._error = str(message["why"])
        while data := self._output.read(_PIPE_BYTES):
            yield Printed(data)
            if not self._process.has_ended:
                return  # it may print for ever, and others wait
        if self._process.has_ended:
            self.stop()
            code = self._process.exit_code
            unknown = "the process that guarded it was killed" if code is None else ""
            kind: Literal["finished", "failed"] = "finished" if code == 0 else "failed"
            yield Ended(kind, error=self._error or unknown, exit_code=code)
        elif data == b"":  # it has closed both streams, and may still run
            self.sources = [connection]

    def stop(self) -> bool:
        self._process.stop()
        if self._process.exit_code is None and self._pid is not None:
            # Its guard was killed, and the command with it: this is for what that had started.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._pid, signal.SIGKILL)
            self._pid = None
        self._output.close()
        self.sources = []
        return True


def main(arguments: Sequence[str]) -> None:
    """Guard the task that the first message describes."""
    # Ray kills the children of a worker that ends; a guard has to outlive it, and so must not
    # be its child.
    if os.fork():
        os._exit(0)
    descriptors = [int(text) for text in arguments]
    for descriptor in descriptors:
        os.set_inheritable(descriptor, False)
    connection = Connection(descriptors[0])
    with contextlib.suppress(EOFError, OSError):  # the owner is gone: there is nothing to do
        task = CommandTask(**decode(connection.recv_bytes()))
        keep(connection, task.run)


if __name__ == "__main__":
    main(sys.argv[1:])
