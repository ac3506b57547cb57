"""Containers: real processes, or scripts of what one would have printed."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from tests.kube.stand_in.pod_log import LONGEST, PodLog
from tests.lifeline import Lifeline

_ENTER = Path(__file__).with_name("enter.py")


class Container(Protocol):
    """Something that runs, writes its log, and ends once."""

    exit_code: int | None

    def terminate(self) -> None: ...

    def kill(self) -> None: ...


@dataclass(frozen=True)
class Simulated:
    """What a simulated pod does: lines, each after a delay, and an exit code."""

    lines: Iterable[tuple[float, str]] = ()
    exit_code: int = 0


class ProcessContainer:
    """A command with all processes below it, in name spaces of its own."""

    def __init__(
        self,
        asked: dict[str, Any],
        log: PodLog,
        lifeline: Lifeline,
        on_end: Callable[[], None],
    ) -> None:
        self.exit_code: int | None = None
        self._log = log
        self._lifeline = lifeline
        self._on_end = on_end
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(_ENTER), json.dumps(asked)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        lifeline.hold(self._process.pid)
        threading.Thread(target=self._read, daemon=True).start()

    def terminate(self) -> None:
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        if self.exit_code is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)

    def _read(self) -> None:
        assert self._process.stdout is not None
        # The pipe ends when the last process of the container has ended.
        while line := self._process.stdout.readline(LONGEST):
            self._log.write(line)
        code = self._process.wait()
        self._lifeline.release(self._process.pid)
        self._process.stdout.close()
        self.exit_code = code if code >= 0 else 128 - code
        self._log.close()
        self._on_end()


class SimulatedContainer:
    """Writes the lines of a script at their times."""

    def __init__(self, script: Simulated, log: PodLog, on_end: Callable[[], None]) -> None:
        self.exit_code: int | None = None
        self._script = script
        self._log = log
        self._on_end = on_end
        self._killed: int | None = None
        self._stop = threading.Event()
        threading.Thread(target=self._play, daemon=True).start()

    def terminate(self) -> None:
        self._end(143)

    def kill(self) -> None:
        self._end(137)

    def _end(self, code: int) -> None:
        self._killed = code
        self._stop.set()

    def _play(self) -> None:
        for delay, line in self._script.lines:
            if self._stop.wait(delay):
                break
            self._log.write(line.encode() + b"\n")
        self.exit_code = self._script.exit_code if self._killed is None else self._killed
        self._log.close()
        self._on_end()
