"""What tests start ends with the test run, however that is ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.processes import PATIENCE, alive, wait_until

# As a program that ends itself gently, and never comes to an end.
_STUBBORN = "trap '' TERM INT HUP; echo ready; while :; do sleep 60; done"
_OWNER = f"""
import subprocess, time
from tests.lifeline import Lifeline
line = Lifeline()
held = subprocess.Popen(
    ["bash", "-c", {_STUBBORN!r}], stdout=subprocess.PIPE, start_new_session=True
)
line.hold(held.pid)
held.stdout.readline()
print(line._guard.pid, held.pid, flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_what_is_held_ends_when_its_owner_is_killed_or_all_are_ended_at_once(
    number: signal.Signals,
) -> None:
    owner = subprocess.Popen(
        [sys.executable, "-c", _OWNER],
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[1],
        text=True,
    )
    assert owner.stdout is not None
    guard, held = (psutil.Process(int(pid)) for pid in owner.stdout.readline().split())
    wait_until(lambda: _ignores(guard.pid, signal.SIGHUP), 10, "the guard to be prepared")
    if number != signal.SIGKILL:
        for process in (guard, held):
            os.kill(process.pid, number)
    owner.send_signal(number)
    owner.wait(10 * PATIENCE)
    wait_until(lambda: not alive(held), 10, "what was held to end")
    wait_until(lambda: not alive(guard), 10, "the guard to end")
    owner.stdout.close()


def _ignores(pid: int, number: int) -> bool:
    status = Path(f"/proc/{pid}/status").read_text()
    ignored = next(line for line in status.splitlines() if line.startswith("SigIgn:"))
    return bool(int(ignored.split()[1], 16) >> (number - 1) & 1)
