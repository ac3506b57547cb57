"""Ends process groups when the process that started them is gone, however it went."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading


class Lifeline:
    """Holds process groups: they are killed when this process is, and at `close`.

    A guard process reads the ids of the groups from a pipe. The end of the pipe is the end of
    whoever held the other side, so it works after SIGKILL too. The guard itself ignores the
    signals that end a whole test run at once: an API server that has lost its etcd does not
    end on SIGTERM. Calls may come from any thread.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._guard = subprocess.Popen(
            [sys.executable, "-S", "-E", __file__], stdin=subprocess.PIPE, start_new_session=True
        )

    def hold(self, group: int) -> None:
        """Have a process group killed at the end, unless it is released before."""
        self._say(f"+{group}")

    def release(self, group: int) -> None:
        """Forget a process group, which must be done before its id can be another's."""
        self._say(f"-{group}")

    def close(self) -> None:
        """Kill what is still held."""
        with self._lock:
            assert self._guard.stdin is not None
            self._guard.stdin.close()
        self._guard.wait(60)

    def _say(self, line: str) -> None:
        with self._lock:
            assert self._guard.stdin is not None
            self._guard.stdin.write(line.encode() + b"\n")
            self._guard.stdin.flush()


def _guard() -> None:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    held: set[int] = set()
    for line in sys.stdin:
        (held.add if line[0] == "+" else held.discard)(int(line[1:]))
    for group in held:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)


if __name__ == "__main__":
    _guard()
