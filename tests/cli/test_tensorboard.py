"""`ditk-ray tensorboard`: a real TensorBoard on event files that tensorboardX wrote."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import pytest

from ditk_ray.cli.main import main
from ditk_ray.record.record import SweepStatus
from ditk_ray.util.locks import sweep_lock
from tests.cli.web import fetch, started
from tests.processes import PATIENCE, can_connect, free_port, processes_in, wait_until
from tests.record.written_sweep import WrittenSweep

COMMAND = str(Path(sys.executable).with_name("ditk-ray"))


def write_events(sweep: Path, trial: int, value: float, inside: str = "attempt_0") -> None:
    """Write what DI-engine would, by the library that it uses."""
    from tensorboardX import SummaryWriter

    folder = sweep / f"trial_{trial:05d}" / inside / "exp/log/serial"
    with SummaryWriter(str(folder)) as writer:
        writer.add_scalar("evaluator_step/reward_mean", value, 100)


def runs(server: str) -> list[str]:
    return json.loads(fetch(f"{server}/data/runs")[1])


@pytest.mark.engine
def test_trials_of_a_running_sweep_appear_by_name_and_nothing_is_left(tmp_path):
    sweep = WrittenSweep(tmp_path / "ditk_ray_results/mine").write(SweepStatus.RUNNING)
    write_events(sweep.folder, 0, 5.0)
    write_events(sweep.folder, 0, 7.0, "attempt_1")
    port = free_port()
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    command = [COMMAND, "tensorboard", "mine", "--port", str(port)]
    env = os.environ | {"TMPDIR": str(temporary)}
    with sweep_lock(sweep.folder), started(command, tmp_path, env=env) as process:
        server = process.stdout.readline().strip()
        assert server == f"http://127.0.0.1:{port}"
        assert b"<title>" in fetch(server)[1]
        wait_until(lambda: runs(server) == ["trial_00000"], 20, "the first trial")
        place = "/data/plugin/scalars/scalars?run=trial_00000&tag=evaluator_step/reward_mean"
        ((_, step, value),) = json.loads(fetch(server + place)[1])
        assert (step, value) == (100, 7.0)  # the newest attempt's
        for seed in (0, 1):
            write_events(sweep.folder, 1, 6.0, f"attempt_0/seed_{seed}")
        expected = ["trial_00000", "trial_00001/seed_0", "trial_00001/seed_1"]
        wait_until(lambda: runs(server) == expected, 30, "the second trial")
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=30 * PATIENCE)
        assert process.returncode == 0
        assert err == "starting TensorBoard (some seconds)\nCtrl-C ends it\nTensorBoard is ended\n"
        wait_until(lambda: not processes_in(tmp_path), 5, "the last process to end")
    assert not can_connect(port)
    assert [item.name for item in temporary.iterdir() if "ditk_ray" in item.name] == []


def test_a_sweep_without_event_files_says_so(tmp_path, capsys):
    sweep = WrittenSweep(tmp_path / "mine")
    sweep.trial(0)
    sweep.write()
    assert main(["tensorboard", str(sweep.folder)]) == 1
    assert "mine: its trials have left no event files" in capsys.readouterr().err
