"""Running a server for a person: whatever ends it, nothing of it is left."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.cli.web import fetch, started
from tests.processes import can_connect, free_port, processes_in, wait_until

# A server that has a helper, which does not end when it is asked to.
SERVER = """
import http.server, subprocess, sys
helper = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
subprocess.Popen([sys.executable, "-c", helper])
print("the server's own log", flush=True)
http.server.test(http.server.SimpleHTTPRequestHandler, port=int(sys.argv[1]), bind="127.0.0.1")
"""
RUN = """
import sys
from ditk_ray.cli import server_process as sp
sp._END_SECONDS = 0.5
port, verbose = sys.argv[1:]
server = sp.Server(
    "the server", [sys.executable, "server.py", port], f"http://127.0.0.1:{port}",
    is_verbose=verbose == "verbose",
)
try:
    sp.serve(server, lambda: print("ready", flush=True), lambda: print("tick", flush=True))
except sp.ServerFailedError as error:
    sys.exit(f"failed: {error}")
"""

Serve = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.fixture
def serve(tmp_path: Path, port: int) -> Iterator[Serve]:
    """Run a server as a command would."""
    with contextlib.ExitStack() as stack:

        def start(*before: str, code: str = SERVER, mode: str = "quiet") -> Any:
            (tmp_path / "server.py").write_text(code)
            command = [*before, sys.executable, "-c", RUN, str(port), mode]
            return stack.enter_context(started(command, tmp_path))

        yield start


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_it_with_all_that_it_started(serve, tmp_path, port, number):
    process = serve()
    assert process.stdout.readline() == "ready\n"
    assert process.stdout.readline() == "tick\n"
    assert fetch(f"http://127.0.0.1:{port}/server.py")[0] == 200
    assert len(processes_in(tmp_path)) == 3
    process.send_signal(number)
    _, err = process.communicate(timeout=20)
    assert (process.returncode, err) == (0, "the server is ended\n")
    wait_until(lambda: not processes_in(tmp_path), 5, "the last process to end")
    assert not can_connect(port)


def test_signals_that_follow_do_not_keep_it_from_ending_all(serve, tmp_path):
    process = serve()
    process.stdout.readline()
    for _ in range(5):
        process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=20)
    assert (process.returncode, err) == (0, "the server is ended\n")
    wait_until(lambda: not processes_in(tmp_path), 5, "the last process to end")


def test_a_server_does_not_outlive_a_command_that_is_killed(serve, port):
    process = serve()
    process.stdout.readline()
    process.kill()
    wait_until(lambda: not can_connect(port), 10, "the server to end")


def test_under_nohup_it_outlives_its_terminal(serve, tmp_path):
    process = serve("nohup")
    process.stdout.readline()
    process.send_signal(signal.SIGHUP)
    assert process.stdout.readline() == "tick\n"
    assert process.stdout.readline() == "tick\n"
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=20)
    assert process.returncode == 0
    wait_until(lambda: not processes_in(tmp_path), 5, "the last process to end")


def test_a_server_that_does_not_start_is_explained_by_its_log(serve):
    process = serve(code="print('some line')\nraise SystemExit('no such store')")
    _, err = process.communicate(timeout=20)
    assert process.returncode == 1
    assert "failed: the server did not start (it left with code 1)" in err
    assert "| some line" in err
    assert "| no such store" in err


def test_a_server_that_ends_by_itself_is_told(serve, tmp_path):
    process = serve()
    process.stdout.readline()
    (server,) = psutil.Process(process.pid).children()
    server.kill()
    _, err = process.communicate(timeout=20)
    assert "failed: the server ended (it left with code -9)" in err
    wait_until(lambda: not processes_in(tmp_path), 5, "the last process to end")


@pytest.mark.parametrize("mode", ["quiet", "verbose"])
def test_its_log_is_shown_only_if_asked(serve, mode):
    process = serve(mode=mode)
    process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=20)
    assert ("the server's own log" in err) is (mode == "verbose")
