"""`tune --resume_existing`: the same command, again and again, until the sweep has finished."""

from __future__ import annotations

import fcntl
import json
import shlex
import shutil
import signal

import pytest
import yaml

from ditk_ray.config.job_files import load_job
from ditk_ray.config.options import SweepOptions
from ditk_ray.record.record import (
    SweepRecord,
    SweepStatus,
    TrialRecord,
    TrialState,
    write_record,
)
from ditk_ray.sweep.resume import SavedJob, save_job
from ditk_ray.util.locks import LOCK_FILE
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
PRETENDED_JOB = f"""
import time
from ditk_ray.execution.scripted import scripted

@scripted
def climb(config, seed=0, **limits):
    for step in range(1, 6):
        yield {{"eval_value": 1.0 * step, "env_step": 100 * step}}
        time.sleep(0.3)
{JOB}
    entry = climb
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


@pytest.mark.timeout(700 * PATIENCE)
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
        (tmp_path / name / "job.py").write_text(PRETENDED_JOB)

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
    assert f"resuming again: {done} trials have ended" in output
    require_sound(folder, 4)

    third = driver(*command, "--format", "json", **environment)
    output, _ = third.communicate(timeout=60 * PATIENCE)
    assert third.returncode == 0, output
    said, _, record = output.partition("{")
    assert "again has finished already" in said
    assert json.loads("{" + record)["status"] == "finished"


AGAIN = ("tune", "--cfg_file", "job.py", "--resume_existing", "--name", "again")


@pytest.fixture
def finished(tmp_path):
    """A sweep that was begun by a command, elsewhere, and has finished; returns its folder."""
    (tmp_path / "job.py").write_text(JOB + JOB.partition("JobCfg\n")[2].replace("Again", "Other"))
    folder = tmp_path / "ditk_ray_results/again"
    folder.mkdir(parents=True)
    job = load_job("AgainJobCfg", tmp_path / "job.py", {"num_samples": 2})
    begun = [*AGAIN, "--cfg_class", "AgainJobCfg", "--num_samples", "2", "--set", "env.x=1"]
    begun[2] = "/gone/job.py"
    options = SweepOptions(command=("/elsewhere/ditk-ray", *begun))
    save_job(folder, SavedJob(job, options, 0), ())
    record = SweepRecord("again", "eval_value", "max", SweepStatus.FINISHED, job={"name": job.name})
    done = {"eval_value": 1.0}
    record.trials["trial_00000"] = TrialRecord(
        "trial_00000", {}, TrialState.SUCCEEDED, done, done, str(folder / "trial_00000")
    )
    write_record(record, folder)
    return folder


SAME = ("--cfg_class", "AgainJobCfg", "--num-samples=2", "--set", "env.x=1")


def test_the_same_command_from_another_folder_is_content(cli, finished):
    done = cli(*AGAIN, *SAME, "--format", "json")
    assert done.returncode == 0, done.stderr
    assert "again has finished already" in done.stderr


@pytest.mark.parametrize(
    ("others", "told"),
    [
        (("--cfg_class", "OtherJobCfg", *SAME[2:]), "of AgainJobCfg, not of OtherJobCfg"),
        (("--num_samples", "3"), "--num_samples 2, not 3"),
        (("--searcher", "tpe"), "--searcher none, not tpe"),
        (("--set", "env.x=2"), "--set env.x=1, not env.x=2"),
        (("--set", "env.y=2"), "--set env.x=1, not env.x=1 env.y=2"),
    ],
)
def test_another_job_of_the_same_name_is_refused(cli, finished, others, told):
    done = cli(*AGAIN, *SAME, *others)
    assert done.returncode == 2, done.stdout
    assert f"--name again: is another sweep: {told}\n" in done.stderr
    assert "give another --name" in done.stderr


def test_what_another_process_runs_is_waited_for(driver, finished):
    waiting = "another process still runs again; waiting for its end"
    with (finished / LOCK_FILE).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        process = driver(*AGAIN, *SAME)
        assert any(waiting in line for line in process.stdout)
        assert process.poll() is None
    out, _ = process.communicate(timeout=60 * PATIENCE)
    assert process.returncode == 0, out
    assert waiting not in out, "it says so once"


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
    assert "no Ray cluster at 127.0.0.1:1" in done.stderr
    assert (tmp_path / "ditk_ray_results/again.unbegun_1/state").is_dir()
