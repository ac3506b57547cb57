"""Running other programs for what they print, within limits of time and size."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

_CHUNK = 64 * 1024
_KEPT_ERRORS = 4 * 1024
_COUNTED = 64
"""A program is ended when it has printed so many times what is kept of it."""
_ENDING_SECONDS = 1.0


class CommandFailedError(Exception):
    """A program is missing, failed (`code`), or took too long."""

    def __init__(self, reason: str, code: int | None = None) -> None:
        super().__init__(reason)
        self.code = code


@dataclass(frozen=True)
class Printed:
    """The beginning of what a program printed."""

    kept: bytes
    left_out: int = 0
    """How many bytes followed."""
    was_ended: bool = False
    """Whether the program was ended for printing too much, so that more would have come."""


def run_bounded(
    command: Sequence[str],
    limit: int,
    seconds: float,
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> Printed:
    """Run a program and return the first `limit` bytes that it prints.

    It gets no input, and is ended, with what it has started, when its time is over.
    Raises `CommandFailedError` then, and if it cannot be started or fails.
    """
    name = Path(command[0]).name
    try:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        raise CommandFailedError(f"{name} cannot be run: {error}") from error
    deadline = time.monotonic() + seconds
    output, errors = _Kept(process.stdout, limit), _Kept(process.stderr, _KEPT_ERRORS)
    try:
        was_ended = _read_all(output, errors, deadline)
        if not was_ended:
            process.wait(max(0.0, deadline - time.monotonic()))
    except (TimeoutError, subprocess.TimeoutExpired) as error:
        raise CommandFailedError(f"{name} took longer than {seconds:.1f} s") from error
    finally:
        _end(process)
    if process.returncode and not was_ended:
        raise CommandFailedError(_reason(name, process.returncode, errors), process.returncode)
    return Printed(bytes(output.data), output.count - len(output.data), was_ended)


class _Kept:
    """The beginning of a stream, and the count of all that came."""

    def __init__(self, stream: IO[bytes] | None, limit: int) -> None:
        assert stream is not None
        self.stream = stream
        self.limit = limit
        self.count = 0
        self.data = bytearray()

    def read(self) -> bool:
        """Read what is there; return False at the end."""
        chunk = os.read(self.stream.fileno(), _CHUNK)
        self.count += len(chunk)
        self.data += chunk[: max(0, self.limit - len(self.data))]
        return bool(chunk)


def _read_all(output: _Kept, errors: _Kept, deadline: float) -> bool:
    """Read to the end of both; return whether it was given up because it is too much."""
    with selectors.DefaultSelector() as selector:
        for kept in (output, errors):
            selector.register(kept.stream, selectors.EVENT_READ, kept)
        while selector.get_map():
            ready = selector.select(deadline - time.monotonic())
            if not ready or time.monotonic() > deadline:
                raise TimeoutError
            for key, _ in ready:
                if not key.data.read():
                    selector.unregister(key.fileobj)
            if output.count > output.limit * _COUNTED:
                return True
    return False


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a program that still runs, and what it has started."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        # A process that hangs in a system call does not even heed this.
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_ENDING_SECONDS)
    for stream in (process.stdout, process.stderr):
        if stream is not None:
            stream.close()


def _reason(name: str, code: int, errors: _Kept) -> str:
    told = bytes(errors.data).decode("utf-8", "backslashreplace").strip()
    return told.partition("\n")[0] or f"{name} left with code {code}"
