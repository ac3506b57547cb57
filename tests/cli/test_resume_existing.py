"""`tune --resume_existing`: the same command, again and again, until the sweep has finished."""

from __future__ import annotations

import json
import shlex
import shutil
import signal

import pytest
import yaml

from tests.faults.sound_sweep import ended, require_sound
from tests.processes import PATIENCE, processes_in, wait_until
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


def ray_job(cli, *command: str) -> tuple[list[str], dict[str, str]]:
    """Return what `cluster run` has a RayJob start, and with which environment."""
    launched = ("--name", "again", "--image", "image", "--no_mlflow")
    shown = cli("cluster", "run", "--dry_run", *launched, "--", *command)
    assert shown.returncode == 0, shown.stderr
    manifests = list(yaml.safe_load_all(shown.stdout))
    [job] = [manifest["spec"] for manifest in manifests if manifest["kind"] == "RayJob"]
    head = job["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]["containers"][0]
    return shlex.split(job["entrypoint"]), {each["name"]: each["value"] for each in head["env"]}


@pytest.mark.timeout(700)
@pytest.mark.ray
def test_the_entrypoint_of_a_ray_job_killed_begun_again_elsewhere_and_once_more(
    driver, cli, tmp_path, ray_address
):
    """KubeRay starts the same command again, on a new cluster, with the same claim for results."""
    command, environment = ray_job(cli, "tune", "--cfg_file", "code/job.py")
    assert command.pop(0) == "ditk-ray"
    results = tmp_path / "claim"
    assert environment["DITK_RAY_STORAGE"] == "/results"
    environment |= {"DITK_RAY_STORAGE": str(results), "RAY_ADDRESS": ray_address}
    folder = results / "again"
    for name in ("first", "second"):  # a shipped copy of the code is another one each time
        (tmp_path / name).mkdir()
        (tmp_path / name / "job.py").write_text(JOB)

    (tmp_path / "code").symlink_to(tmp_path / "first")
    process = driver(*command, **environment)
    wait_until(lambda: ended(folder), 150, "a trial to end")
    process.send_signal(signal.SIGKILL)
    process.wait()
    wait_until(lambda: not processes_in(folder), 30, "the trials to end with their driver")
    shutil.rmtree(tmp_path / "first")
    done = len(ended(folder))

    (tmp_path / "code").unlink()
    (tmp_path / "code").symlink_to(tmp_path / "second")
    second = driver(*command, **environment)
    output, _ = second.communicate(timeout=280 * PATIENCE)
    assert second.returncode == 0, output
    assert f"going on with again: {done} trials have ended" in output
    require_sound(folder, 4)

    third = driver(*command, "--format", "json", **environment)
    output, _ = third.communicate(timeout=60 * PATIENCE)
    assert third.returncode == 0, output
    said, _, record = output.partition("{")
    assert "again has finished already" in said
    assert json.loads("{" + record)["status"] == "finished"


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
