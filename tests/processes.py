"""Watching and ending real processes."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

PATIENCE = float(os.environ.get("DITK_RAY_TEST_PATIENCE", "1"))
"""How many times longer than on a quiet machine things may take until they are given up."""

SLACK = min(PATIENCE, 2.0)
"""The same for a time that a test lets pass in full: more of it would only be waited for."""

TIED = ("setpriv", "--pdeathsig", "TERM")
"""Before a command: it is told to end when the test run dies, whatever killed that."""


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def can_connect(port: int) -> bool:
    with contextlib.suppress(OSError):
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
        return True
    return False


def wait_until(condition: Callable[[], Any], seconds: float, what: str) -> Any:
    """Return the condition's value once it is true; fail if that takes too long."""
    deadline = time.monotonic() + seconds * PATIENCE
    while time.monotonic() < deadline:
        if value := condition():
            return value
        time.sleep(0.05)
    pytest.fail(f"waited {seconds * PATIENCE:.0f} s in vain for {what}")


def end(processes: list[psutil.Process]) -> None:
    """End processes of our own that may be left, by their ids."""
    _, alive = psutil.wait_procs(processes, timeout=10)
    for process in alive:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(alive, timeout=5)


def processes_in(folder: Path) -> list[psutil.Process]:
    """Return the living processes that work in `folder`: a trial's, with all below it."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            inside = Path(process.cwd()).is_relative_to(folder)
            if inside and process.status() != psutil.STATUS_ZOMBIE and process.pid != os.getpid():
                found.append(process)
    return found


def alive(process: psutil.Process) -> bool:
    """Say whether a process runs, as opposed to one that only waits to be noticed as ended."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    return False
