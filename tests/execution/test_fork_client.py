from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path

import psutil
import pytest

from ditk_ray.errors import EngineMissingError
from ditk_ray.execution import fork_client
from ditk_ray.execution.fork_client import ForkClient, runtime_folder
from ditk_ray.execution.fork_server import LOCK_NAME
from ditk_ray.util.locks import locked
from tests.processes import PATIENCE, processes_in, wait_until

pytestmark = pytest.mark.engine

LIGHT_GRACE = 0.5
LIGHT = f"""
import sys
from ditk_ray.execution import fork_server
fork_server.ENGINE, fork_server.LAZY, fork_server.GRACE_SECONDS = "json", (), {LIGHT_GRACE}
fork_server.main(sys.argv[1:])
"""
"""A server that starts at once, for it imports no engine, and does not stay for long."""

OWNER = """
import sys, time
from functools import partial
from ditk_ray.execution import fork_client
from tests.execution import test_fork_client as tests
folder, key = sys.argv[1:]
fork_client._SERVER = tests.light_server()
job = fork_client.ForkClient(key).run(partial(tests.start_children, folder))
print(job.receive()["kind"], flush=True)
time.sleep(3600)
"""


def light_server() -> tuple[str, ...]:
    return sys.executable, "-W", "ignore", "-c", LIGHT


@pytest.fixture
def light(monkeypatch):
    monkeypatch.setattr(fork_client, "_SERVER", light_server())


def start_children(folder, channel):
    """Start children of which one is in a session of its own, and wait."""
    os.chdir(folder)
    for is_alone in (False, True):
        code = "import time; time.sleep(3600)"
        subprocess.Popen([sys.executable, "-c", code], start_new_session=is_alone)
    channel.send("started")
    time.sleep(3600)


def tell_pid(channel):
    channel.send("pid", pid=os.getpid(), parent=os.getppid())


def tell_modules(channel):
    channel.send("modules", names=sorted(sys.modules))


def test_jobs_are_forked_from_a_server_without_threads(warm):
    first = warm.run(tell_pid)
    message = first.receive()
    assert message is not None
    first.stop()
    server = psutil.Process(warm._server.pid)
    names = [
        Path(f"/proc/{server.pid}/task/{thread.id}/comm").read_text().strip()
        for thread in server.threads()
        if thread.id != server.pid
    ]
    # pyarrow's allocator has a thread that survives a fork by design.
    assert set(names) <= {"jemalloc_bg_thd"}


def test_everyone_with_the_same_key_shares_one_server(warm):
    other = ForkClient(warm.key)
    other.join()
    try:
        assert other._server is None
        job = other.run(tell_pid)
        assert job.receive() is not None
        job.stop()
    finally:
        other.leave()


def test_preloaded_modules_are_there_when_a_job_begins(warm):
    warm.preload(["colorsys", "no_such_module_at_all"])
    job = warm.run(tell_modules)
    message = job.receive()
    job.stop()
    assert message is not None
    assert "colorsys" in message["names"]


def test_a_server_leaves_when_its_owner_does(light):
    with ForkClient() as node:
        node.join()
        server = psutil.Process(node._server.pid)
        folder = node._folder
        assert folder.exists()
    assert not server.is_running() or server.status() == psutil.STATUS_ZOMBIE
    assert not folder.exists()


def test_one_that_is_left_while_others_start_theirs_starts_none():
    node = ForkClient()
    with locked(runtime_folder() / LOCK_NAME):
        joining = threading.Thread(target=partial(pytest.raises, EngineMissingError, node.join))
        joining.start()
        node.__exit__()
    joining.join()
    assert node._server is None


def test_sweeps_in_a_row_share_a_server_that_the_first_has_started(light, monkeypatch):
    monkeypatch.setenv(fork_client.SHARED_KEY, f"shared{os.getpid()}")
    monkeypatch.setattr(fork_client, "SHARED_SECONDS", 3.0)
    with ForkClient() as first:
        first.join()
        server = first._server
    assert server is not None and server.poll() is None
    with ForkClient() as second:
        second.join()
        assert second._server is None
    wait_until(lambda: server.poll() is not None, 20, "the server to leave")


def test_a_server_that_was_killed_is_replaced_and_stays(light):
    with ForkClient() as node:
        node.preload(["colorsys"])
        node.join()
        node._server.kill()
        node._server.wait()
        for _ in range(2):
            job = node.run(tell_modules)
            assert "colorsys" in job.receive()["names"]
            job.stop()
            replacement = node._server
            time.sleep(LIGHT_GRACE + 1.5)
            assert replacement.poll() is None


def test_when_the_owner_is_killed_its_job_and_the_server_go_with_it(tmp_path):
    key = f"test{os.getpid()}"
    owner = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", OWNER, str(tmp_path), key],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    assert owner.stdout is not None
    assert owner.stdout.readline().strip() == "started"
    assert len(processes_in(tmp_path)) == 3
    servers = [
        process
        for process in psutil.process_iter(["cmdline"])
        if key in " ".join(process.info["cmdline"] or [])
    ]
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    wait_until(lambda: not processes_in(tmp_path), 10, "the job's processes to end")
    assert servers
    gone, _ = psutil.wait_procs(servers, timeout=15 * PATIENCE)
    assert set(gone) == set(servers)
