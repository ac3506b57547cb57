"""`ditk-ray submit` on two real clusters of this machine, each with a token of its own."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import pytest

from ditk_ray.execution.fork_client import SHARED_KEY
from ditk_ray.record.record import read_record
from tests.mlflow_server import RecordedRuns
from tests.processes import PATIENCE, wait_until
from tests.provenance.repositories import git, new_repository
from tests.ray_cluster.ray_clusters import RayCluster
from tests.submit.cutting_proxy import CuttingProxy
from tests.trial import experiments

pytestmark = [pytest.mark.ray, pytest.mark.timeout(400 * PATIENCE)]

ROOT = Path(__file__).resolve().parents[2]

PROGRAM = """
import os, sys, time
print("words", sys.argv[1:], os.environ.get("COLOUR"), os.path.exists("beside.txt"), flush=True)
what, amount = sys.argv[1], float(sys.argv[2])
if what == "wait":
    time.sleep(amount)
if what == "until":
    while not os.path.exists(sys.argv[3]):
        time.sleep(0.1)
if what == "touch":
    open(sys.argv[3], "w").close()
if what == "lines":
    for number in range(int(amount)):
        print(f"line {number} " + "x" * 200, flush=True)
        time.sleep(0.01)
if what == "fail":
    sys.exit(int(amount))
print("done", flush=True)
"""

JOB = f"""
from ray import tune
from ditk_ray import JobCfg
from ditk_ray.execution.scripted import scripted

@scripted
def climb(config, seed=0, **limits):
    for step in range(1, 4):
        score = step * config.policy.learn.learning_rate
        yield {{"eval_value": score, "env_step": 100 * step, "train_iter": step}}

class SmallJobCfg(JobCfg):
    config = {experiments.CARTPOLE!r}
    space = {{
        "policy.learn.learning_rate": tune.loguniform(1e-3, 1e-2),
        "policy.eval.evaluator.eval_freq": 10,
    }}
    num_samples = 2
    max_env_step = 200

class PretendedJobCfg(SmallJobCfg):
    entry = climb
    max_concurrent = 1
"""


@pytest.fixture(scope="module")
def clusters(tmp_path_factory: pytest.TempPathFactory, warm: Any) -> Iterator[Any]:
    """A cluster of two nodes, one of a single node, and a user who knows both."""
    there = tmp_path_factory.mktemp("there")
    environment = {"HOME": str(there), SHARED_KEY: warm.key}
    with (
        RayCluster({"CPU": 1}, {"CPU": 1}, dashboard=True, environment=environment) as one,
        RayCluster({"CPU": 1}, dashboard=True, token=secrets.token_hex(32)) as two,
    ):
        home = tmp_path_factory.mktemp("home")
        lines = (f"name: {name} address: {at.dashboard_url}" for name, at in _named(one, two))
        (home / ".cluster_config").write_text("\n".join(lines))
        (home / ".ray/tokens").mkdir(parents=True)
        (home / ".ray/tokens/two").write_text(two.token)
        yield SimpleNamespace(one=one, two=two, home=home, there=there)


def _named(one: RayCluster, two: RayCluster) -> list[tuple[str, RayCluster]]:
    return [("one", one), ("two", two)]


@pytest.fixture
def user(clusters: Any, tmp_path: Path) -> Iterator[Any]:
    """Somebody with a program in a folder, who runs `ditk-ray submit` there."""
    project, errors = tmp_path / "work", tmp_path / "stderr.txt"
    project.mkdir()
    (project / "program.py").write_text(PROGRAM)
    (project / "beside.txt").touch()
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [str(Path(sys.executable).with_name("ditk-ray")), "submit", *arguments],
            cwd=project,
            env={**os.environ, "HOME": str(clusters.home)},
            stdout=subprocess.PIPE,
            stderr=errors.open("w"),
            text=True,
        )
        started.append(process)
        return process

    def run(*arguments: str, timeout: float = 300 * PATIENCE) -> Any:
        process = start(*arguments)
        stdout, _ = process.communicate(timeout=timeout)
        return SimpleNamespace(code=process.returncode, stdout=stdout, stderr=errors.read_text())

    yield SimpleNamespace(start=start, run=run, errors=errors)
    for process in started:
        process.kill()
        process.communicate()


def listed(user: Any, job_id: str) -> dict[str, Any]:
    jobs = json.loads(user.run("--list", "--format", "json").stdout)
    (job,) = [job for job in jobs if job["id"] == job_id]
    return dict(job)


def test_a_job_runs_with_the_shipped_code_and_leaves_its_exit_code(user):
    words = ["fail", "7", "a b", "$HOME", "it's"]
    done = user.run(
        *("--cluster", "one", "--env", "COLOUR=red", "--metadata", "who=me"),
        *("--entrypoint_cpus", "0.5", "--", "python", "program.py", *words),
    )

    assert done.code == 7, done.stderr
    assert f"words {words} red True\n" in done.stdout
    assert "shipping 2 files" in done.stderr
    assert "failed on one" in done.stderr
    assert "exit code 7" in done.stderr
    job = listed(user, done.stderr.split(" runs on ")[0].split()[-1])
    assert (job["cluster"], job["status"], job["exit_code"]) == ("one", "FAILED", 7)
    assert job["metadata"]["who"] == "me"


def test_several_jobs_go_to_the_clusters_as_these_become_free(user, tmp_path):
    # The first keeps its cluster busy until the other has had all the rest.
    over = str(tmp_path / "over")
    done = user.run(
        *("--format", "json", "--", "python", "program.py", "until", "0", over),
        *("---", "python", "program.py", "fail", "3", "---", "tune", "--list"),
        *("---", "python", "program.py", "touch", "0", over),
    )

    assert done.code == 3
    slow, failed, listed, last = json.loads(done.stdout)
    states = [one["status"] for one in (slow, failed, listed, last)]
    assert states == ["SUCCEEDED", "FAILED", "SUCCEEDED", "SUCCEEDED"]
    assert slow["cluster"] != failed["cluster"] == last["cluster"], "what is free takes the next"
    assert {slow["cluster"], failed["cluster"]} == {"one", "two"}
    assert f"[{slow['id']} {slow['cluster']}] done\n" in done.stderr
    assert f"[{failed['id']} {failed['cluster']}] words ['fail', '3']" in done.stderr
    assert "CartpoleDQNJobCfg" in done.stderr, "ditk_ray and its jobs are shipped"


def test_a_log_whose_connection_is_cut_again_and_again_comes_whole_and_once(user, clusters):
    proxy = CuttingProxy(urlsplit(clusters.one.dashboard_url).port)
    cuts: list[int] = []
    process = user.start("--address", proxy.url, "--", "python", "program.py", "lines", "1000")

    def cut() -> None:
        while process.poll() is None and len(cuts) < 6:
            if proxy.passed > 30_000 * (len(cuts) + 1):
                cuts.append(proxy.passed)
                proxy.cut()
            time.sleep(0.05)

    cutter = threading.Thread(target=cut, daemon=True)
    cutter.start()
    try:
        stdout, _ = process.communicate(timeout=200 * PATIENCE)
        cutter.join(20)
    finally:
        proxy.close()

    assert process.returncode == 0
    assert len(cuts) >= 3
    lines = [line for line in stdout.splitlines() if line.startswith("line ")]
    assert lines == [f"line {number} " + "x" * 200 for number in range(1000)]
    assert stdout.splitlines()[-1] == "done"


def test_ctrl_c_leaves_the_job_running_which_can_be_stopped_and_followed_later(user):
    process = user.start("--cluster", "one", "--", "python", "program.py", "wait", "500")
    _read_until(process, "words")
    process.send_signal(signal.SIGINT)
    assert process.wait(30 * PATIENCE) == 130
    told = user.errors.read_text()
    job_id = told.split(" runs on ")[0].split()[-1]
    assert f"{job_id} keeps running on one" in told
    assert f"ditk-ray submit --follow {job_id}" in told
    assert listed(user, job_id)["status"] == "RUNNING"

    stopped = user.run("--stop", job_id)
    assert stopped.code == 0
    assert f"{job_id} stopped on one" in stopped.stderr

    followed = user.run("--follow", job_id)
    assert followed.code == 1
    assert "words ['wait', '500']" in followed.stdout
    unknown = user.run("--stop", f"{job_id}x")
    assert unknown.code == 2
    assert f"did you mean '{job_id}'" in unknown.stderr


def test_ctrl_c_stops_the_jobs_if_that_is_wanted_and_sends_no_more(user):
    process = user.start(
        *("--cluster", "one", "--on_interrupt", "stop"),
        *("--", "python", "program.py", "wait", "500", "---", "python", "program.py", "fail", "0"),
    )
    _read_until(process, "words")
    process.send_signal(signal.SIGINT)
    assert process.wait(60 * PATIENCE) == 130
    told = user.errors.read_text()
    job_id = told.split(" runs on ")[0].split()[-1]
    assert f"{job_id} stopped" in told
    assert "python program.py fail 0 was not sent" in told


def _read_until(process: subprocess.Popen[str], text: str) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if text in line:
            return
    pytest.fail(f"it ended without printing {text!r}")


def test_without_waiting_only_the_id_is_printed(user):
    done = user.run("--cluster", "two", "--no_wait", "--", "python", "program.py", "fail", "5")
    assert done.code == 0
    (job_id,) = done.stdout.splitlines()
    assert user.run("--follow", job_id, "--cluster", "two").code == 5


def test_a_wrong_token_is_told_with_where_to_put_the_right_one(user, clusters):
    done = user.run("--address", clusters.two.dashboard_url, "--list")
    assert done.code == 0, "by its address, too, it is the cluster whose token is known"
    (clusters.home / ".ray/tokens/two").rename(clusters.home / "kept")
    try:
        done = user.run("--cluster", "two", "--", "true")
    finally:
        (clusters.home / "kept").rename(clusters.home / ".ray/tokens/two")
    assert done.code == 2
    assert "does not accept the token" in done.stderr
    assert ".ray/tokens/two" in done.stderr


@pytest.mark.mlflow
def test_a_submitted_sweep_ends_with_what_a_local_one_ends_with(
    user, clusters, mlflow_server, cli, tmp_path, ray_address
):
    project = new_repository(tmp_path / "project", {"job.py": JOB})
    (project / "job.py").write_text(f"{JOB}\n# not committed\n")
    tune = ["tune", "--cfg_file", "job.py", "--cfg_class", "PretendedJobCfg"]
    tune += ["--name", "small", "--seed", "1"]
    tune += ["--mlflow_uri", mlflow_server.uri, "--mlflow_experiment"]

    done = user.run("--cluster", "one", "--working_dir", str(project), "--", *tune, "submitted")
    local = cli(*tune[:2], str(project / "job.py"), *tune[3:], "local", RAY_ADDRESS=ray_address)

    assert done.code == 0, done.stdout + done.stderr
    assert local.returncode == 0, local.stderr
    there, here = clusters.there / "ditk_ray_results/small", tmp_path / "ditk_ray_results/small"
    assert str(there) in done.stdout
    assert _artifacts(there) == _artifacts(here)
    records = [read_record(folder) for folder in (there, here)]
    first, second = ({t.id: t.params for t in record.trials.values()} for record in records)
    assert first == second
    runs = [RecordedRuns(mlflow_server.client(), name) for name in ("submitted", "local")]
    assert set(runs[0].children) == set(runs[1].children)
    for run in runs:
        assert run.history("trial_00000", "eval_value")

    told = json.loads((there / "provenance/provenance.json").read_text())
    (origin,) = [one for one in told["repositories"] if "working directory" in one["labels"]]
    assert origin["commit"] == git(project, "rev-parse", "HEAD")
    assert origin["is_dirty"]
    assert "+# not committed" in (there / "provenance" / origin["diff"]).read_text()
    assert told["submitted_from"] == str(project)


def _artifacts(folder: Path) -> set[str]:
    """Return the files that are a sweep's result, without what Ray Tune and time name."""
    tops = ("report.html", "sweep.json", "best_config.py", "provenance", "trial_", "state")
    files = (file.relative_to(folder) for file in folder.rglob("*") if file.is_file())
    wanted = [file for file in files if file.parts[0].startswith(tops) and len(file.parts) <= 2]
    return {str(file) for file in wanted if file.suffix != ".diff"}


def test_rays_own_command_submits_the_script(clusters, tmp_path):
    for name in ("ditk_ray", "scripts"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "job_cfgs").mkdir()
    (tmp_path / "job_cfgs/small.py").write_text(JOB)
    command = [str(Path(sys.executable).with_name("ray")), "job", "submit"]
    command += ["--address", clusters.one.dashboard_url, "--working-dir", str(tmp_path)]
    command += ["--", "python", "scripts/tune.py", "--cfg_class", "SmallJobCfg", "--name", "rays"]
    command += ["--num_samples", "1", "--mlflow_uri", "none"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300 * PATIENCE)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (clusters.there / "ditk_ray_results/rays/best_config.py").is_file()


def test_a_cluster_that_dies_loses_its_job_and_the_other_does_the_rest(user, clusters):
    wait = ["python", "program.py", "wait", "500"]
    process = user.start(
        *("--cluster", "two", "--cluster", "one", "--lost_after", "3s", "--format", "json"),
        *("--", *wait, "---", "python", "program.py", "fail", "0"),
        *("---", "python", "program.py", "fail", "0"),
    )
    wait_until(lambda: " two] words" in user.errors.read_text(), 120, "the job to run")

    clusters.two.kill()

    stdout, _ = process.communicate(timeout=120 * PATIENCE)
    assert process.returncode == 1
    lost, *others = json.loads(stdout)
    assert (lost["cluster"], lost["status"]) == ("two", "LOST")
    assert [(one["cluster"], one["status"]) for one in others] == [("one", "SUCCEEDED")] * 2
    told = user.errors.read_text()
    assert "when the cluster is back" in told
    assert "two gets no more jobs" in told
