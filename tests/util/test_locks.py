from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from ditk_ray.util.locks import HeldError, is_running, sweep_lock, wait_until_free
from tests.processes import wait_until

HOLD = (
    "import sys, time; from pathlib import Path; from ditk_ray.util.locks import sweep_lock\n"
    "with sweep_lock(Path(sys.argv[1])):\n    print('held', flush=True); time.sleep(60)"
)


def test_a_folder_that_nobody_holds_is_not_running(tmp_path):
    assert not is_running(tmp_path)
    with sweep_lock(tmp_path):
        pass
    assert not is_running(tmp_path)


def test_a_sweep_runs_until_its_process_is_gone_even_by_sigkill(tmp_path):
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"held\n"
    assert is_running(tmp_path)
    with pytest.raises(HeldError), sweep_lock(tmp_path):
        pass

    os.kill(process.pid, signal.SIGKILL)
    process.wait()

    wait_until(lambda: not is_running(tmp_path), 5, "the lock to be let go")


def test_waiting_for_a_sweep_that_does_not_end_is_given_up(tmp_path):
    assert wait_until_free(tmp_path, 0.1)
    with sweep_lock(tmp_path):
        assert not wait_until_free(tmp_path, 0.1)
