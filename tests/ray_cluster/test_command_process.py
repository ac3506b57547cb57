"""The life of a command on a node, without Ray."""

from __future__ import annotations

import os
import shlex
import signal
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from ditk_ray.execution.executor import Ended, Event, Printed, Started, follow
from ditk_ray.ray_cluster.command_process import CommandExecutor, CommandTask
from tests.processes import alive, wait_until


@pytest.fixture
def executor():
    with Path(os.devnull).open() as held:
        yield CommandExecutor(held.fileno())


def ended(executor, *arguments: str, folder: Path = Path("/"), **limits) -> tuple[bytes, Ended]:
    task = CommandTask(list(arguments), str(folder), dict(os.environ), **limits)
    run = executor.start(task)
    started, *printed, end = follow(executor, run)
    assert started == Started()
    assert executor.listen([run], 0.1) == [], "nothing follows the end"
    return b"".join(event.data for event in printed), end


def test_a_command_has_its_folder_cores_and_memory_and_all_that_it_prints_comes(executor, tmp_path):
    core = min(os.sched_getaffinity(0))
    see = "import os, resource; print(os.getcwd(), os.sched_getaffinity(0), "
    see += "resource.getrlimit(resource.RLIMIT_DATA)[0], flush=True); os.write(2, b'x' * 300_000)"
    printed, end = ended(
        executor, sys.executable, "-c", see, folder=tmp_path, cores=[core], memory=2**30
    )
    first, _, rest = printed.partition(b"\n")
    assert first.decode() == f"{tmp_path} {{{core}}} {2**30}"
    assert (len(rest), end) == (300_000, Ended(exit_code=0))


@pytest.mark.parametrize(
    ("arguments", "folder", "code", "error"),
    [
        (["sh", "-c", "exit 7"], "/", 7, ""),
        (["sh", "-c", "kill -9 $$"], "/", -9, ""),
        (["no_such_program"], "/", 127, "no_such_program cannot be started"),
        (["true"], "/no/such/folder", 127, "cannot be started in /no/such/folder: No such file"),
        (["/etc/passwd"], "/", 126, "Permission denied"),
    ],
)
def test_how_a_command_ends_is_reported(executor, arguments, folder, code, error):
    printed, end = ended(executor, *arguments, folder=Path(folder))
    assert (printed, end.kind, end.exit_code) == (b"", "failed", code)
    assert error in end.error and bool(error) == bool(end.error)


@pytest.mark.parametrize("killed", ["nobody", "the guard"])
def test_nothing_of_a_command_is_left_once_it_is_stopped(executor, tmp_path, killed):
    tree = "import os, signal, subprocess; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
    tree += "child = subprocess.Popen(['sleep', '600']); "
    tree += "print(os.getpid(), child.pid, os.getppid(), flush=True); child.wait()"
    task = CommandTask([sys.executable, "-c", tree], str(tmp_path), dict(os.environ))
    run = executor.start(task)
    events = follow(executor, run)
    printed = next(event for event in events if isinstance(event, Printed))
    *pids, guard = map(int, printed.data.split())
    processes = [psutil.Process(pid) for pid in pids]
    if killed == "the guard":
        os.kill(guard, signal.SIGKILL)
        (end,) = events
        assert end == Ended("failed", error="the process that guarded it was killed")
        # They are not ours to wait for.
        wait_until(lambda: not any(map(alive, processes)), 10, "what it started to be gone")
    assert run.stop() and run.stop()
    assert not any(map(alive, processes))


def test_several_commands_are_listened_to_at_once_and_none_drowns_the_others(executor):
    words = ["yes", "sh -c 'exec >&- 2>&-; sleep 0.5; exit 3'", "echo a"]
    tasks = [CommandTask(shlex.split(text), "/", dict(os.environ)) for text in words]
    endless, silent, brief = runs = [executor.start(task) for task in tasks]
    seen: dict[Any, list[Event]] = {run: [] for run in runs}
    while not all(has_ended(seen[run]) for run in (silent, brief)):
        for run, event in executor.listen(runs, 0.5):
            seen[run].append(event)
    endless.stop()
    assert seen[brief] == [Started(), Printed(b"a\n"), Ended(exit_code=0)]
    assert [type(event) for event in seen[silent]] == [Started, Ended]
    assert seen[silent][-1].exit_code == 3
    assert any(isinstance(event, Printed) for event in seen[endless])


def has_ended(events: list[Event]) -> bool:
    return any(isinstance(event, Ended) for event in events)
