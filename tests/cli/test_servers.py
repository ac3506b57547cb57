"""Running a server for a person: whatever ends it, nothing of it is left."""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from ditk_ray.cli.servers import Address, choose_address
from ditk_ray.errors import BadConfigError
from tests.cli.web import fetch, started
from tests.processes import PATIENCE, can_connect, free_port, processes_in, wait_until

# A server that has a helper, which does not end when it is asked to.
SERVER = """
import http.server, subprocess, sys
helper = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
subprocess.Popen([sys.executable, "-c", helper])
print("the server's own log", flush=True)
http.server.test(http.server.SimpleHTTPRequestHandler, port=int(sys.argv[1]), bind="127.0.0.1")
"""
RUN = """
import sys, time
from ditk_ray.cli import servers as sp
port, verbose = sys.argv[1:]
sp._END_SECONDS = 20 if verbose == "patient" else 0.5
sp.TICK_SECONDS = 0.05 if verbose == "slow" else 0.5
command, address = [sys.executable, "server.py", port], sp.Address("127.0.0.1", int(port))
server = sp.ServerCommand(verbose=verbose == "verbose")
def tick():
    print("tick", flush=True)
    time.sleep(0.1 if verbose == "slow" else 0)
try:
    server.serve("the server", command, address, "ready", tick=tick)
except sp.DitkRayError as error:
    sys.exit(f"failed: {error}")
"""

SAID = "starting the server (some seconds)\nCtrl-C ends it\nthe server is ended\n"
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
    _, err = process.communicate(timeout=20 * PATIENCE)
    assert (process.returncode, err) == (0, SAID)
    wait_until(lambda: not processes_in(tmp_path), 5, "the last process to end")
    assert not can_connect(port)


def test_signals_that_follow_do_not_keep_it_from_ending_all(serve, tmp_path):
    process = serve()
    process.stdout.readline()
    for _ in range(5):
        process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=20 * PATIENCE)
    assert (process.returncode, err) == (0, SAID)
    wait_until(lambda: not processes_in(tmp_path), 5, "the last process to end")


def test_helpers_of_a_server_that_has_left_have_time_to_end(serve, tmp_path):
    helper = (
        "signal.signal(signal.SIGTERM, lambda *_: (time.sleep(0.3), open('saved', 'w'), exit()))"
    )
    code = SERVER.replace(
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)", f"{helper}; open('up', 'w')"
    )
    process = serve(code=code, mode="patient")
    wait_until((tmp_path / "up").exists, 10, "the helper to be up")
    process.stdout.readline()
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    assert (tmp_path / "saved").exists()
    assert not processes_in(tmp_path)


def test_what_takes_long_between_is_done_seldom(serve):
    process = serve(mode="slow")
    assert process.stdout.readline() == "ready\n"
    assert process.stdout.readline() == "tick\n"
    begun = time.monotonic()
    assert process.stdout.readline() == "tick\n"
    assert time.monotonic() - begun > 1.9


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
    process.communicate(timeout=20 * PATIENCE)
    assert process.returncode == 0
    wait_until(lambda: not processes_in(tmp_path), 5, "the last process to end")


def test_a_server_that_does_not_start_is_explained_by_its_log(serve):
    process = serve(code="print('some line')\nraise SystemExit('no such store')")
    _, err = process.communicate(timeout=20 * PATIENCE)
    assert process.returncode == 1
    assert "failed: the server did not start (it exited with code 1)" in err
    assert "| some line" in err
    assert "| no such store" in err


def test_a_server_that_ends_by_itself_is_told(serve, tmp_path):
    process = serve()
    process.stdout.readline()
    (server,) = psutil.Process(process.pid).children()
    server.kill()
    _, err = process.communicate(timeout=20 * PATIENCE)
    assert "failed: the server ended (it exited with code -9)" in err
    wait_until(lambda: not processes_in(tmp_path), 5, "the last process to end")


@pytest.mark.parametrize("mode", ["quiet", "verbose"])
def test_its_log_is_shown_only_if_asked(serve, mode):
    process = serve(mode=mode)
    process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=20 * PATIENCE)
    assert ("the server's own log" in err) is (mode == "verbose")


@pytest.fixture
def taken():
    """A port that somebody listens at."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        yield server.getsockname()[1]


def test_the_usual_port_is_taken_if_it_is_free():
    port = free_port()
    assert choose_address("127.0.0.1", None, port) == Address("127.0.0.1", port)


def test_if_the_usual_port_is_taken_the_next_free_one_is_chosen(taken):
    assert choose_address("127.0.0.1", None, taken).port > taken


def test_a_wanted_port_that_is_taken_is_refused_with_one_that_is_free(taken):
    with pytest.raises(BadConfigError, match=rf"--port {taken}: is taken\n +\d+ is free"):
        choose_address("127.0.0.1", taken, 5000)


@pytest.mark.parametrize("host", ["192.0.2.77", "no.such.host.invalid"])
def test_a_host_that_is_not_this_machine_is_refused(host):
    with pytest.raises(BadConfigError, match=f"--host {host}: cannot listen there at port 5000"):
        choose_address(host, None, 5000)


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("127.0.0.1", True),
        ("127.1.2.3", True),
        ("localhost", True),
        ("::1", True),
        ("0.0.0.0", False),
        ("::", False),
        ("192.0.2.77", False),
        ("myhost", False),
    ],
)
def test_only_loopback_addresses_are_for_this_machine_alone(host, loopback):
    assert Address(host, 80).is_loopback is loopback


def test_an_address_is_shown_as_a_browser_takes_it():
    assert Address("127.0.0.1", 5000).url == "http://127.0.0.1:5000"
    assert Address("::1", 5000).url == "http://[::1]:5000"
    assert Address("0.0.0.0", 5000).url == f"http://{socket.gethostname()}:5000"


def test_a_server_for_everybody_is_known_by_the_machines_names():
    names = Address("0.0.0.0", 5000).names()
    assert {"localhost", "127.0.0.1", "[::1]", socket.gethostname()} <= set(names)
    assert "*" not in "".join(names)
