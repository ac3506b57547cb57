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
from ditk_ray.execution.fork_client import ForkClient, runtime_folder
from ditk_ray.execution.fork_server import GRACE_SECONDS, LOCK_NAME
from ditk_ray.util.locks import locked
from tests.processes import PATIENCE, processes_in, wait_until

pytestmark = pytest.mark.engine

OWNER = """
import sys, time
from functools import partial
from pathlib import Path
from ditk_ray.execution.fork_client import ForkClient
from tests.trial.experiments import attempt_here, make_plan, with_subprocess_envs
from ditk_ray.config.engine_config import load_engine_config
folder = Path(sys.argv[1])
plan = make_plan(folder, limits={}, base=with_subprocess_envs(make_plan(folder).job.config))
node = ForkClient(sys.argv[2])
run = attempt_here(plan, {}, folder / "trial", node)
run.next_report()
print("training", flush=True)
time.sleep(3600)
"""


def tell_pid(channel):
    channel.send("pid", pid=os.getpid(), parent=os.getppid())


def tell_modules(channel):
    channel.send("modules", names=sorted(sys.modules))


def test_jobs_are_forked_in_milliseconds_from_a_server_without_threads(warm):
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


def test_a_server_leaves_when_its_owner_does():
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


def test_a_server_that_was_killed_is_replaced_and_stays():
    with ForkClient() as node:
        node.join()
        node._server.kill()
        node._server.wait()
        for _ in range(2):
            job = node.run(tell_pid)
            assert job.receive() is not None
            job.stop()
            replacement = node._server
            time.sleep(GRACE_SECONDS + 1.5)
            assert replacement.poll() is None


def test_when_the_owner_is_killed_its_trial_and_the_server_go_with_it(tmp_path):
    key = f"test{os.getpid()}"
    owner = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", OWNER, str(tmp_path), key],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    assert owner.stdout is not None
    assert owner.stdout.readline().strip() == "training"
    assert len(processes_in(tmp_path)) > 5
    servers = [
        process
        for process in psutil.process_iter(["cmdline"])
        if key in " ".join(process.info["cmdline"] or [])
    ]
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    wait_until(lambda: not processes_in(tmp_path), 10, "the trial's processes to end")
    gone, _ = psutil.wait_procs(servers, timeout=15 * PATIENCE)
    assert set(gone) == set(servers)
