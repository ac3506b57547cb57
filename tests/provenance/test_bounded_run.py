"""Programs that fail, hang or print without end."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import psutil
import pytest

from ditk_ray.provenance.bounded_run import CommandFailedError, Printed, run_bounded
from tests.processes import wait_until


def test_what_a_program_prints_is_returned() -> None:
    assert run_bounded(["echo", "hello"], 100, 10) == Printed(b"hello\n")


def test_it_runs_in_a_folder_and_an_environment(tmp_path: Path) -> None:
    printed = run_bounded(
        ["sh", "-c", "pwd; echo $A"], 1000, 10, tmp_path, {**os.environ, "A": "b"}
    )

    assert printed.kept.decode() == f"{tmp_path}\nb\n"


def test_what_is_beyond_the_limit_is_counted_and_not_kept() -> None:
    assert run_bounded(["printf", "%0100d", "0"], 10, 10) == Printed(b"0" * 10, left_out=90)


def test_a_program_that_prints_without_end_is_ended() -> None:
    begun = time.monotonic()

    printed = run_bounded(["yes"], 1000, 30)

    assert len(printed.kept) == 1000
    assert printed.was_ended
    assert time.monotonic() - begun < 10


def test_errors_without_end_do_not_block_it() -> None:
    code = "import sys; sys.stderr.write('e' * 10**6); print('done')"

    assert run_bounded([sys.executable, "-c", code], 100, 30).kept == b"done\n"


def test_a_failure_is_told_by_the_first_line_of_its_errors() -> None:
    with pytest.raises(CommandFailedError, match=r"^first$") as caught:
        run_bounded(["sh", "-c", "echo first >&2; echo second >&2; exit 3"], 100, 10)

    assert caught.value.code == 3


def test_a_silent_failure_is_told_by_its_code() -> None:
    with pytest.raises(CommandFailedError, match="false left with code 1"):
        run_bounded(["false"], 100, 10)


@pytest.mark.parametrize("command", [["no-such-program"], ["/"], ["a\0b"]])
def test_a_program_that_cannot_be_run_is_a_failure(command: list[str]) -> None:
    with pytest.raises(CommandFailedError, match="cannot be run"):
        run_bounded(command, 100, 10)


@pytest.mark.parametrize("closing", ["", "exec >&- 2>&-;"], ids=["open", "closed"])
def test_a_program_that_hangs_is_ended_with_what_it_started(tmp_path: Path, closing: str) -> None:
    pids = tmp_path / "pids"
    script = f"{closing} sleep 100 & echo $! $$ > {pids}; wait"
    begun = time.monotonic()

    with pytest.raises(CommandFailedError, match="sh took longer than"):
        run_bounded(["sh", "-c", script], 100, 0.5)

    assert time.monotonic() - begun < 10
    started = [int(pid) for pid in pids.read_text().split()]
    wait_until(lambda: not any(map(psutil.pid_exists, started)), 5, "the processes to end")


def test_nothing_is_left_open() -> None:
    before = set(Path("/proc/self/fd").iterdir())

    run_bounded(["echo"], 100, 10)
    with pytest.raises(CommandFailedError):
        run_bounded(["sleep", "100"], 100, 0.1)

    # Others in this process may close what is theirs meanwhile.
    assert set(Path("/proc/self/fd").iterdir()) <= before
