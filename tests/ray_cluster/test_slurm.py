"""cluster_configs/slurm.sh, on a real Slurm of two nodes."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.processes import PATIENCE, wait_until
from tests.ray_cluster.slurm import Job, Slurm, require_slurm

SCRIPT = Path(__file__).parents[2] / "cluster_configs" / "slurm.sh"

LOOK = """
import json, os, sys, time
import ray

token = open(os.environ["RAY_AUTH_TOKEN_PATH"]).read().strip()
ray.init(log_to_driver=False, logging_level="ERROR")

@ray.remote(num_cpus=0)
class Meeting:
    def __init__(self):
        self.there = 0
    def count(self, come):
        self.there += come
        return self.there

meeting = Meeting.remote()

@ray.remote(num_cpus=1, num_gpus=1)
def take() -> str:
    ray.get(meeting.count.remote(1))
    while ray.get(meeting.count.remote(0)) < 2:  # the other has to go to the other node
        time.sleep(0.1)
    return os.environ["RAY_AUTH_TOKEN_PATH"]

print(json.dumps({
    "resources": [node["Resources"] for node in ray.nodes() if node["Alive"]],
    "mode": oct(os.stat(os.environ["RAY_AUTH_TOKEN_PATH"]).st_mode & 0o777),
    "shown": [name for name, value in os.environ.items() if token in value],
    "token_files": len(set(ray.get([take.remote(), take.remote()]))),
    "arguments": sys.argv[1:],
}))
sys.exit(7)
"""

STAY = """
import signal, sys, time

def end(*_):
    if "told" in globals():
        sys.exit(9)
    globals()["told"] = True
    print("told to end, but not yet", flush=True)

signal.signal(signal.SIGTERM, end)
print("staying", flush=True)
while True:
    time.sleep(1)
"""


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    require_slurm()
    running = Slurm(tmp_path_factory.mktemp("slurm"))
    try:
        yield running
    finally:
        running.stop()


@pytest.fixture
def node_disks() -> Iterator[list[Path]]:
    """What the nodes' own disks are for two jobs of a test; short, as sockets lie in them."""
    folders = [Path(tempfile.mkdtemp(prefix="sl_", dir="/tmp")) for _ in range(2)]
    yield folders
    for folder in folders:
        shutil.rmtree(folder)


def submit(slurm: Slurm, disk: Path, program: str, *arguments: str, gpus: int = 0) -> Job:
    """Run a Python program on a Ray cluster that has one CPU of each node."""
    file = slurm.folder / f"{disk.name}.py"
    file.write_text(program)
    options = ("--nodes=2", "--cpus-per-task=1", "--mem=1500", f"--gpus-per-node={gpus}")
    folders = {"DITK_RAY_NODE_TMP": str(disk), "TMPDIR": str(disk)}
    return slurm.submit(SCRIPT, ["python", str(file), *arguments], *options, **folders)


def require_nothing_left(job: Job, folder: Path) -> None:
    wait_until(lambda: not job.processes(), 30, f"the job's processes to end: {job.processes()}")
    assert [path.name for path in folder.iterdir()] == []


def require_looked_around(job: Job, folder: Path) -> None:
    """Fail unless a job that looks around saw a cluster of its own, and left nothing."""
    assert job.wait(240) == 7, job.log()
    seen = json.loads(next(line for line in job.log().splitlines() if line.startswith("{")))
    amounts = [(one["CPU"], one["GPU"], one["memory"]) for one in seen["resources"]]
    assert amounts == [(1, 1, 1500 * 1024**2 * 8 // 10)] * 2
    assert seen["arguments"] == ["two words", "$HOME"]
    assert (seen["mode"], seen["shown"]) == ("0o600", [])
    assert seen["token_files"] == 2, "both nodes ran a task"
    require_nothing_left(job, folder)


@pytest.mark.timeout(400 * PATIENCE)
@pytest.mark.ray
def test_a_job_has_a_cluster_of_its_nodes_and_ends_with_the_commands_code(slurm, node_disks):
    job = submit(slurm, node_disks[0], LOOK, "two words", "$HOME", gpus=1)
    require_looked_around(job, node_disks[0])


@pytest.mark.slow
@pytest.mark.timeout(800 * PATIENCE)
@pytest.mark.ray
def test_two_jobs_share_the_nodes_and_each_has_a_cluster_of_its_own(slurm, node_disks):
    """One ends by itself with a code of its own, the other is cancelled; nothing is left."""
    looking = submit(slurm, node_disks[0], LOOK, "two words", "$HOME", gpus=1)
    staying = submit(slurm, node_disks[1], STAY)

    require_looked_around(looking, node_disks[0])

    staying.wait_for("\nstaying\n", 240)
    # As before the time limit: only the batch script gets the signal, and hands it on.
    slurm.run("scancel", "--batch", "--signal=TERM", staying.number)
    staying.wait_for("told to end, but not yet", 30)
    raylets = [one for one in staying.processes() if one.name() == "raylet"]
    assert len(raylets) == 2, "the command can end in good order: its cluster is still there"
    slurm.run("scancel", staying.number)
    staying.wait(180)
    assert staying.facts()["JobState"] == "CANCELLED"
    require_nothing_left(staying, node_disks[1])


@pytest.mark.ray
def test_nodes_that_do_not_join_in_time_fail_the_job_with_what_they_said(slurm, node_disks):
    folders = {"DITK_RAY_NODE_TMP": str(node_disks[0]), "TMPDIR": str(node_disks[0])}
    options = ("--nodes=2", "--mem=500")
    job = slurm.submit(SCRIPT, ["true"], *options, **folders, DITK_RAY_JOIN_TIME="1")
    assert job.wait() == 1
    assert "what its nodes said:" in job.log()
    assert "after 1 s" in job.log()
    require_nothing_left(job, node_disks[0])


def test_a_command_that_is_not_there_is_refused_before_anything_starts(slurm):
    job = slurm.submit(SCRIPT, ["ditk-rey", "tune"], "--nodes=1", "--mem=500")
    assert job.wait() == 2
    assert job.log().startswith("[slurm] no command `ditk-rey` on the PATH")


def test_an_environment_without_ray_is_refused(slurm):
    job = slurm.submit(SCRIPT, ["true"], "--nodes=1", "--mem=500", PATH="/usr/bin:/bin")
    assert job.wait() == 2
    assert "set DITK_RAY_VENV to the environment's folder" in job.log()


def test_outside_of_slurm_it_says_how_to_run_it():
    said = subprocess.run(
        ["bash", str(SCRIPT), "true"], env={"PATH": "/usr/bin:/bin"}, capture_output=True, text=True
    )
    assert said.returncode == 2
    assert "this is no Slurm job: run it with sbatch" in said.stderr
