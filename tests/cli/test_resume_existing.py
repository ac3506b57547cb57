"""`tune --resume_existing`: the same command, again and again, until the sweep has finished."""

from __future__ import annotations

import json
import shutil
import signal
from functools import partial

import pytest

from tests.faults.sound_sweep import ended, require_sound
from tests.processes import processes_in, wait_until
from tests.trial import experiments

JOB = f"""
from ray import tune
from ditk_ray import JobCfg

class AgainJobCfg(JobCfg):
    config = {experiments.CARTPOLE!r}
    space = {{
        "policy.learn.learning_rate": tune.loguniform(1e-3, 1e-2),
        "env.stop_value": 10**9,
        "policy.eval.evaluator.eval_freq": 10,
    }}
    num_samples = 4
    max_env_step = 500
    max_concurrent = 1
"""


@pytest.mark.timeout(700)
@pytest.mark.ray
def test_killed_begun_again_elsewhere_and_once_more(driver, cli, tmp_path, ray_address):
    for name in ("first", "second"):  # a shipped copy of the code is another one each time
        (tmp_path / name).mkdir()
        (tmp_path / name / "job.py").write_text(JOB)
    folder = tmp_path / "ditk_ray_results/again"
    start = partial(driver, "tune", "--resume_existing", "--name", "again", "--mlflow_uri", "none")

    process = start("--cfg_file", "first/job.py", RAY_ADDRESS=ray_address)
    wait_until(lambda: ended(folder), 150, "a trial to end")
    process.send_signal(signal.SIGKILL)
    process.wait()
    wait_until(lambda: not processes_in(folder), 30, "the trials to end with their driver")
    shutil.rmtree(tmp_path / "first")
    done = len(ended(folder))

    second = start("--cfg_file", "second/job.py", RAY_ADDRESS=ray_address)
    output, _ = second.communicate(timeout=280)
    assert second.returncode == 0, output
    assert f"going on with again: {done} trials have ended" in output
    require_sound(folder, 4)

    third = cli(
        *("tune", "--cfg_file", "second/job.py", "--resume_existing", "--name", "again"),
        *("--format", "json"),
    )
    assert third.returncode == 0
    assert "again has finished already" in third.stderr
    assert json.loads(third.stdout)["status"] == "finished"


def test_it_needs_a_name(cli, tmp_path):
    (tmp_path / "job.py").write_text(JOB)
    done = cli("tune", "--cfg_file", "job.py", "--resume_existing")
    assert done.returncode == 2
    assert "--resume_existing: needs --name" in done.stderr


@pytest.mark.parametrize("name", ["", ".", "../other"])
def test_a_name_that_is_no_folders_moves_nothing(cli, tmp_path, name):
    (tmp_path / "job.py").write_text(JOB)
    (tmp_path / "ditk_ray_results/earlier/state").mkdir(parents=True)
    done = cli("tune", "--cfg_file", "job.py", "--resume_existing", "--name", name)
    assert done.returncode == 2
    assert "--name" in done.stderr
    assert (tmp_path / "ditk_ray_results/earlier/state").is_dir()


def test_a_folder_that_is_no_sweeps_is_left_alone(cli, tmp_path):
    (tmp_path / "job.py").write_text(JOB)
    (tmp_path / "ditk_ray_results/again/pictures").mkdir(parents=True)
    done = cli(
        *("tune", "--cfg_file", "job.py", "--resume_existing", "--name", "again"),
        *("--ray_address", "127.0.0.1:1"),
    )
    assert done.returncode == 2
    assert (tmp_path / "ditk_ray_results/again/pictures").is_dir()


def test_a_folder_of_a_sweep_that_never_began_is_put_aside(cli, tmp_path):
    (tmp_path / "job.py").write_text(JOB)
    (tmp_path / "ditk_ray_results/again/state").mkdir(parents=True)
    done = cli(
        *("tune", "--cfg_file", "job.py", "--resume_existing", "--name", "again"),
        *("--ray_address", "127.0.0.1:1"),
    )
    assert done.returncode == 2
    assert "nothing answers at 127.0.0.1:1" in done.stderr
    assert (tmp_path / "ditk_ray_results/again.unbegun_1/state").is_dir()
