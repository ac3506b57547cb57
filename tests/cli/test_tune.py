from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
from dataclasses import fields
from pathlib import Path

import pytest
from mlflow import MlflowClient

from ditk_ray import JobCfg
from ditk_ray.cli.main import main
from ditk_ray.cli.tune import JobChanges
from ditk_ray.execution.fork_client import SHARED_KEY
from ditk_ray.tracking.recording import embedded_uri, read_state
from tests.inline import DITK_RAY
from tests.mlflow_server import RecordedRuns
from tests.processes import PATIENCE, processes_in, wait_until
from tests.trial.experiments import CARTPOLE

JOBS = f"""
import time
from ray import tune
from ray.tune import CLIReporter
from ditk_ray import JobCfg
from ditk_ray.execution.scripted import scripted

@scripted
def climb(config, seed=0, **limits):
    for step in range(1, 10_000 if config.env.stop_value > 1000 else 4):
        yield {{"eval_value": 1.0 * step, "env_step": 50 * step}}
        time.sleep(0.2)

@scripted
def stumble(config, seed=0, **limits):
    raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")
    yield

class BaseJobCfg(JobCfg):
    '''A quick one.'''
    config = {CARTPOLE!r}
    space = {{"policy.learn.learning_rate": tune.loguniform(1e-4, 1e-2)}}
    num_samples = 2
    max_env_step = 200

class LongJobCfg(BaseJobCfg):
    max_env_step = None
    space = {{"env.stop_value": 10**9}}
    create_space = {{"env_manager.type": "subprocess"}}

class ScriptedJobCfg(BaseJobCfg):
    entry = climb
    max_concurrent = 1

class LongScriptedJobCfg(LongJobCfg):
    entry = climb
    max_concurrent = 1

class FailingJobCfg(BaseJobCfg):
    entry = stumble

class MyReporter(CLIReporter):
    pass
"""


@pytest.fixture
def jobs(tmp_path: Path) -> Path:
    file = tmp_path / "my_jobs.py"
    file.write_text(JOBS)
    return file


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Run a command that has to be refused, and return its one screen of explanation."""
    assert main(["tune", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "Traceback" not in err
    assert len(err.splitlines()) < 25
    return err


def test_a_flag_of_the_job_is_made_of_its_field(capsys):
    with pytest.raises(SystemExit):
        main(["tune", "--help"])
    help = " ".join(capsys.readouterr().out.split())

    assert "--metric NAME[,NAME] what is optimised --mode" in help
    assert "--num_samples N how many times the space is drawn from (a grid" in help
    assert "--seeds_aggregate {mean,median,worst,iqm} how a trial's score follows from its" in help
    assert "--backend {serial,dijob} where trials run: in processes" in help
    changes = JobChanges()
    assert {field.name for field in fields(JobCfg) if field.metadata} < set(vars(changes))
    assert changes.as_attributes() == {"set": {}, "searcher_opt": {}, "scheduler_opt": {}}


def test_a_missing_file_lists_those_that_are_there(capsys, jobs):
    message = refused(capsys, "--cfg_file", str(jobs.with_name("my_job.py")))
    assert "no such file" in message
    assert "'my_jobs.py'" in message


def test_a_missing_class_lists_similar_ones(capsys):
    message = refused(capsys, "--cfg-class", "CartpolDQNJobCfg")
    assert "did you mean 'CartpoleDQNJobCfg'" in message


def test_a_file_with_several_jobs_needs_the_class(capsys, jobs):
    message = refused(capsys, "--cfg_file", str(jobs))
    assert "BaseJobCfg, LongJobCfg, ScriptedJobCfg" in message


def test_a_config_without_main_config_is_refused(capsys, tmp_path):
    (tmp_path / "config.py").write_text("main_cfg = {}\ncreate_config = {}\n")
    (tmp_path / "job.py").write_text(
        "from ditk_ray import JobCfg\nclass A(JobCfg):\n    config = 'config.py'\n"
    )
    message = refused(capsys, "--cfg_file", str(tmp_path / "job.py"))
    assert "A.config" in message
    assert "defines no `main_config`" in message
    assert "'main_cfg'" in message


def test_an_assignment_without_a_value_is_refused(capsys, jobs):
    command = ["--cfg_file", str(jobs), "--cfg_class", "BaseJobCfg", "--set", "policy.nstep"]
    assert "has to be PATH=VALUE" in refused(capsys, *command)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--searcher", "tpee"], "did you mean 'tpe'"),
        (["--searcher", "hebo"], "there is no 'hebo'"),
        (["--searcher", "tpe", "--searcher-opt", "n_startup=3"], "'n_startup_trials'"),
        (["--searcher", "tpe", "--searcher_opt", "n_startup_trials=x"], "it has to be: int"),
        (["--searcher_opt", "points"], "--searcher_opt points: has to be NAME=VALUE"),
        (["--searcher", "tpe", "--scheduler", "pbt"], "use the searcher 'random'"),
        (["--scheduler", "ashaa"], "did you mean 'asha'"),
        (["--warm_start", "never"], "there is no such sweep"),
    ],
)
def test_a_wrong_searcher_or_scheduler_is_refused(capsys, jobs, flags, message):
    command = ["--cfg_file", str(jobs), "--cfg_class", "BaseJobCfg"]
    assert message in refused(capsys, *command, *flags)


def test_searchers_and_schedulers_are_listed_with_what_they_are_for(capsys):
    assert main(["tune", "--list_searchers", "--format", "json"]) == 0
    listed = {row["searcher"]: row for row in json.loads(capsys.readouterr().out)}
    assert listed["hyperopt"]["otherwise"] == "pip install 'ditk-ray[hyperopt]'"
    assert main(["tune", "--list-schedulers"]) == 0
    shown = capsys.readouterr().out
    assert "asha" in shown
    assert "resource_changing" in shown


def test_a_stopper_class_that_the_file_does_not_define_is_refused(capsys, jobs):
    command = ["--cfg_file", str(jobs), "--cfg_class", "BaseJobCfg", "--stopper", "MyStoper"]
    assert "no such class in" in refused(capsys, *command)


def test_nothing_answering_at_the_address_is_said_at_once(capsys, jobs):
    command = ["--cfg_file", str(jobs), "--cfg_class", "BaseJobCfg"]
    message = refused(capsys, *command, "--ray_address", "127.0.0.1:1")
    assert "no Ray cluster at 127.0.0.1:1" in message


def test_ray_clients_address_is_refused_with_what_to_give_instead(capsys, jobs):
    command = ["--cfg_file", str(jobs), "--cfg_class", "BaseJobCfg"]
    assert "HOST:6379" in refused(capsys, *command, "--ray_address", "ray://127.0.0.1:10001")


@pytest.mark.engine
def test_a_mistake_found_while_di_engine_is_still_importing_prints_no_traceback(driver, tmp_path):
    (tmp_path / "job.py").write_text(
        "from ditk_ray import JobCfg\nclass A(JobCfg):\n    config = 'no_such_config.py'\n"
    )
    ended = driver("tune", "--cfg_file", "job.py", **{SHARED_KEY: ""})
    shown, _ = ended.communicate(timeout=60 * PATIENCE)
    assert ended.returncode == 2
    assert "no such file" in shown
    assert "Traceback" not in shown


def test_an_unknown_flag_suggests_the_right_one(capsys):
    with pytest.raises(SystemExit) as left:
        main(["tune", "--num_sample", "3"])
    assert left.value.code == 2
    assert "did you mean --num_samples?" in capsys.readouterr().err


def test_the_jobs_are_listed_with_what_they_do(capsys, jobs):
    assert main(["tune", "--list"]) == 0
    listed = capsys.readouterr().out
    for name in ("CartpoleDQNJobCfg", "CartpolePPOJobCfg", "PendulumSACJobCfg"):
        assert name in listed
    assert main(["tune", "--list", "--cfg_file", str(jobs), "--format", "json"]) == 0
    names = [row["name"] for row in json.loads(capsys.readouterr().out)]
    assert names[:3] == ["BaseJobCfg", "LongJobCfg", "ScriptedJobCfg"]


@pytest.mark.engine
def test_a_plan_shows_what_would_run_and_starts_nothing(cli, tmp_path, jobs):
    command = ["tune", "--cfg_file", str(jobs), "--cfg_class", "BaseJobCfg", "--plan"]
    shown = cli(*command, "--num-samples", "6", "--set", "policy.learn.batch_size=128")
    assert shown.returncode == 0, shown.stderr
    assert "6 trials" in shown.stdout
    assert "policy.learn.learning_rate" in shown.stdout
    assert "always 128" in shown.stdout
    assert "holds" in shown.stdout
    plan = json.loads(cli(*command, "--format", "json").stdout)
    assert plan["trials"] == 2
    assert plan["fits"] is True
    assert plan["at_once"] == min(2, len(os.sched_getaffinity(0)))
    assert [item.name for item in tmp_path.iterdir()] == ["my_jobs.py"]


@pytest.mark.engine
def test_a_typo_in_set_is_refused_before_anything_starts(cli, tmp_path, jobs):
    shown = cli(
        "tune", "--cfg_file", str(jobs), "--cfg_class", "BaseJobCfg",
        "--set", "policy.learn.batchsize=1",
    )  # fmt: skip
    assert shown.returncode == 2
    assert "did you mean 'policy.learn.batch_size'" in shown.stderr
    assert "Traceback" not in shown.stderr
    assert [item.name for item in tmp_path.iterdir()] == ["my_jobs.py"]


@pytest.mark.ray
def test_a_sweep_on_a_ray_of_its_own_shows_progress_and_a_summary(driver, tmp_path, jobs):
    process = driver(
        "tune", "--cfg_file", str(jobs), "--cfg_class", "ScriptedJobCfg", "--name", "mine",
        "--repeat_run_count", "2", "--seed", "1", "--stopper", "env_step>=100000",
    )  # fmt: skip
    shown, _ = process.communicate(timeout=200 * PATIENCE)
    assert process.returncode == 0, shown
    assert "trial_00001 succeeded" in shown
    assert "(2/2 done)" in shown
    assert "best: trial_0000" in shown
    assert "policy.learn.learning_rate = " in shown
    assert "python ditk_ray_results/mine/best_config.py" in shown
    record = json.loads((tmp_path / "ditk_ray_results/mine/sweep.json").read_text())
    assert {"eval_value_seed_1", "eval_value_seed_2"} <= set(record["trials"][0]["metrics"])
    wait_until(lambda: not processes_in(tmp_path), 15, "its Ray to end")


@pytest.mark.ray
def test_failed_trials_are_shown_with_the_tail_of_their_log(cli, jobs, ray_address):
    command = ("tune", "--cfg_file", str(jobs), "--cfg_class", "FailingJobCfg")
    shown = cli(*command, RAY_ADDRESS=ray_address)
    assert shown.returncode == 1
    assert "trial_00000 failed: RuntimeError: mat1 and mat2 shapes" in shown.stdout
    assert "| RuntimeError: mat1 and mat2" in shown.stdout
    assert "no trial got a score" in shown.stdout
    assert "Traceback" not in shown.stderr


@pytest.mark.ray
def test_a_reporter_class_of_the_file_replaces_the_display(cli, jobs, ray_address):
    shown = cli(
        "tune", "--cfg_file", str(jobs), "--cfg_class", "ScriptedJobCfg",
        "--progress_reporter", "MyReporter", "--format", "json", RAY_ADDRESS=ray_address,
    )  # fmt: skip
    assert shown.returncode == 0, shown.stderr
    assert "== Status ==" in shown.stdout
    assert "trial_00000 started" not in shown.stderr


@pytest.mark.ray
@pytest.mark.mlflow
@pytest.mark.parametrize(
    ("number", "job", "has_own_ray"),
    [(signal.SIGINT, "LongJobCfg", True), (signal.SIGTERM, "LongScriptedJobCfg", False)],
)
def test_an_interrupted_sweep_ends_cleanly_and_says_so(
    number, job, has_own_ray, driver, tmp_path, jobs, ray_address
):
    command = ("tune", "--cfg_file", str(jobs), "--cfg_class", job, "--name", "long")
    recorded = ("--mlflow_uri", "embedded", "--mlflow_experiment", "long")
    ray = {} if has_own_ray else {"RAY_ADDRESS": ray_address}
    running = driver(*command, *recorded, **ray)
    folder = tmp_path / "ditk_ray_results/long"
    wait_until(lambda: list(folder.glob("*/metrics.jsonl")), 90, "the first evaluation")
    wait_until(lambda: len(read_state(folder, "embedded").runs) > 1, 90, "a trial in MLflow")
    running.send_signal(number)
    out, _ = running.communicate(timeout=40 * PATIENCE)
    assert running.returncode == 130
    assert "long: interrupted" in out
    record = json.loads((folder / "sweep.json").read_text())
    assert record["status"] == "interrupted"
    states = {trial["state"] for trial in record["trials"]}
    assert "paused" in states
    assert states <= {"paused", "pending"}, "the others had not begun"
    runs = RecordedRuns(MlflowClient(embedded_uri(folder.parent)), "long")
    assert runs.parent.info.status == "KILLED", "not running for ever"
    assert {run.info.status for run in runs.children.values()} == {"KILLED"}
    wait_until(lambda: not processes_in(tmp_path), 15, "its Ray to end")


@pytest.mark.ray
def test_a_sweep_under_nohup_outlives_its_terminal(tmp_path, jobs, warm, ray_address):
    command = ["nohup", DITK_RAY, "tune", "--cfg_file", str(jobs), "--mlflow_uri", "none"]
    command += ["--cfg_class", "ScriptedJobCfg", "--name", "detached"]
    running = subprocess.Popen(
        command,
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=os.environ | {"RAY_ADDRESS": ray_address, SHARED_KEY: warm.key},
    )
    folder = tmp_path / "ditk_ray_results/detached"
    wait_until((folder / "sweep.json").exists, 90, "the sweep to start")
    running.send_signal(signal.SIGHUP)
    assert running.wait(90 * PATIENCE) == 0
    assert json.loads((folder / "sweep.json").read_text())["status"] == "finished"


@pytest.mark.ray
def test_when_the_driver_is_killed_nothing_survives(tmp_path, jobs):
    command = [DITK_RAY, "tune", "--cfg_file", str(jobs)]
    command += ["--cfg_class", "LongJobCfg", "--name", "long", "--mlflow_uri", "none"]
    running = subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    folder = tmp_path / "ditk_ray_results/long"
    wait_until(lambda: list(folder.glob("*/metrics.jsonl")), 90, "the first evaluation")
    running.kill()
    running.wait()
    wait_until(lambda: not processes_in(folder), 30, "the trials' processes to end")


@pytest.mark.ray
def test_on_a_terminal_the_progress_is_a_live_table(tmp_path, jobs, warm, ray_address):
    """Run it on a real pseudo-terminal and read what a person would see."""
    controller, terminal = pty.openpty()
    running = subprocess.Popen(
        [
            DITK_RAY,
            "tune",
            "--cfg_file",
            str(jobs),
            "--cfg_class",
            "ScriptedJobCfg",
            "--name",
            "live",
            "--mlflow_uri",
            "none",
        ],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=terminal,
        env=os.environ
        | {"TERM": "xterm-256color", "COLUMNS": "120", "LINES": "30"}
        | {"RAY_ADDRESS": ray_address, SHARED_KEY: warm.key},
    )
    os.close(terminal)
    shown = b""
    while True:
        try:
            shown += os.read(controller, 4096)
        except OSError:  # the terminal's other end is closed
            break
    assert running.wait() == 0
    text = shown.decode(errors="replace")
    assert "best eval_value" in text
    assert "trial_00000" in text
    assert "\x1b[2K" in text  # lines are drawn over, not added
