"""Single commands on a real cluster: kept apart on their nodes, and never left behind."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.processes import PATIENCE, alive, wait_until
from tests.ray_cluster.ray_clusters import RayCluster

pytestmark = pytest.mark.ray

SEE = (
    "import json, os, resource; print(json.dumps({"
    "'cores': sorted(os.sched_getaffinity(0)), 'cuda': os.environ['CUDA_VISIBLE_DEVICES'],"
    "'threads': os.environ['OMP_NUM_THREADS'], 'share': os.environ.get('DITK_RAY_GPU_FRACTION'),"
    "'memory': resource.getrlimit(resource.RLIMIT_DATA)[0], 'cwd': os.getcwd(),"
    "'stage': os.environ.get('STAGE')}))"
)
# A command with a child, which is beside it in its group, or has left that and stays on SIGTERM.
TREE = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"],
                         start_new_session=sys.argv[2] == "apart")
with open(sys.argv[1], "w") as file:
    file.write(f"{os.getpid()} {child.pid} {os.getppid()}")
print("ready", flush=True)
time.sleep(600)
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayCluster]:
    """A head that runs nothing, and two nodes with two GPUs each, which only Ray believes in."""
    with RayCluster({"CPU": 0}) as started:
        for gpus in ("0,1", "2,3"):
            resources = {"CPU": 1, "GPU": 2, f"shelf{gpus[0]}": 1}
            started.add_node(resources, ["env", f"CUDA_VISIBLE_DEVICES={gpus}"])
        yield started


def wrapped(done) -> dict:
    return json.loads(done.stdout)


def seen(run: dict) -> dict:
    return json.loads(Path(run["log"]).read_text())


def tree(path: Path) -> list[psutil.Process]:
    wait_until(lambda: path.exists() and len(path.read_text().split()) == 3, 150, "the command")
    return [psutil.Process(int(pid)) for pid in path.read_text().split()]


def test_commands_get_disjoint_cores_and_gpus_and_what_their_tasks_say(cluster, cli, tmp_path):
    (tmp_path / "sub").mkdir()
    # Each is there until all are.
    meet = (
        "import pathlib, sys, time; here = pathlib.Path(sys.argv[1]); "
        "(here / sys.argv[2]).touch(); "
        "wait = lambda: len(list(here.iterdir())) < 3 and (time.sleep(0.05) or True); "
        "[None for _ in iter(wait, False)]"
    )
    (tmp_path / "met").mkdir()
    held = [SEE + "; " + meet, str(tmp_path / "met")]
    tasks = [
        {"name": "a", "py_args": ["-c", *held, "a"], "num_gpus": 1, "memory": "1G"},
        {"name": "b", "command": ["python", "-c", *held, "b"], "num_gpus": "0.5*2", "cwd": "sub"},
        {"name": "c", "py_args": ["-c", *held, "c"], "num_cpus": 0, "env": {"STAGE": "test"}},
    ]
    tasks[0]["node"] = {"resource": "shelf0"}
    tasks[1]["node"] = {"specific": "resource", "resource": "shelf2"}
    (tmp_path / "tasks.yaml").write_text(json.dumps({"concurrent": False, "tasks": tasks}))
    done = cli(
        *("wrap", "--ray_address", cluster.address, "--task_cfg", "tasks.yaml"),
        *("--format", "json", "--log_dir", str(tmp_path / "logs")),
    )
    assert done.returncode == 0, done.stderr
    a, b, c = (seen(run) for run in wrapped(done)["commands"])
    assert a["cores"] != b["cores"] or len(os.sched_getaffinity(0)) == 1
    assert len(a["cores"]) == len(b["cores"]) == 1
    assert a["cuda"] in ("0", "1") and b["cuda"] in ("2", "3")
    assert (a["threads"], a["share"], a["memory"]) == ("1", "1", 2**30)
    assert b["cwd"] == str(tmp_path / "sub") and a["cwd"] == str(tmp_path)
    assert (c["cuda"], c["share"], c["stage"]) == ("", None, "test")
    assert len(c["cores"]) == len(os.sched_getaffinity(0))
    assert "[a] {" in done.stderr, "with JSON the commands' lines go where no program reads"


def test_halves_of_a_gpu_and_a_core_are_given_and_one_failure_is_the_whole(cluster, cli, tmp_path):
    see = f'python -c "{SEE}"'
    done = cli(
        *(
            "wrap",
            "--ray_address",
            cluster.address,
            "--cpu",
            "0.5",
            "--gpu",
            "0.5",
            "0.5",
            "0",
            "0",
        ),
        *("--format", "json", "--", see, see, "sh -c 'printf last; exit 7'", "no_such_program"),
    )
    assert done.returncode in (7, 127), done.stderr
    half, other, failed, missing = wrapped(done)["commands"]
    for run in (half, other):
        assert len(run["gpus"]) == 1 and seen(run)["share"] == "0.5" and len(run["cores"]) == 1
    assert (failed["state"], failed["exit_code"]) == ("failed", 7)
    assert Path(failed["log"]).read_text() == "last"
    assert "[2] last" in done.stderr
    assert missing["exit_code"] == 127 and "no_such_program cannot be started" in missing["why"]
    assert half["state"] == other["state"] == "succeeded", "the others went on"


def test_the_isolation_test_tells_what_each_worker_sees(cluster, cli, monkeypatch):
    more = [{"name": "more", "min": 0, "max": 9, "cpu": 8}]
    monkeypatch.setenv("DITK_RAY_WORKER_GROUPS", json.dumps(more))  # nodes that are not there yet
    done = cli("wrap", "--ray_address", cluster.address, "--test", "--gpu", "1", "--cpu", "0.5")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "isolated: 4 workers at once" in done.stdout
    lines = done.stdout.splitlines()[1:5]
    assert sorted(line.split()[8] for line in lines) == ["0", "1", "2", "3"], done.stdout


def test_what_can_never_all_run_at_once_is_refused_before_anything_starts(cluster, cli, tmp_path):
    task = {"py_args": "-c pass"}
    (tmp_path / "tasks.yaml").write_text(json.dumps({"concurrent": True, "tasks": [task] * 3}))
    done = cli("wrap", "--ray_address", cluster.address, "--task_cfg", "tasks.yaml")
    assert done.returncode == 2
    assert "cannot all run at once" in done.stderr
    assert not (tmp_path / "ditk_ray_wrapped").exists()


def test_ctrl_c_ends_running_and_waiting_commands(cluster, driver, tmp_path):
    (tmp_path / "tree.py").write_text(TREE)
    commands = [f"python tree.py {tmp_path}/{name} apart" for name in "abc"]
    process = driver("wrap", "--ray_address", cluster.address, "--", *commands)
    wait_until(lambda: len([*tmp_path.glob("[abc]")]) == 2, 150, "two commands to run")
    processes = [one for path in tmp_path.glob("[abc]") for one in tree(path)]
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=90 * PATIENCE)
    assert process.returncode == 130, output
    assert not any(map(alive, processes)), "gone before the command says that it is over"
    assert len([*tmp_path.glob("[abc]")]) == 2, "the third never began"
    assert output.count("cancelled") >= 3


def test_a_killed_driver_leaves_nothing_of_its_commands(cluster, driver, tmp_path):
    (tmp_path / "tree.py").write_text(TREE)
    process = driver(
        *("wrap", "--ray_address", cluster.address, "--", f"python tree.py {tmp_path}/a apart")
    )
    processes = tree(tmp_path / "a")
    process.kill()
    wait_until(lambda: not any(map(alive, processes)), 60, "all of the command to be gone")


def test_a_killed_worker_or_keeper_costs_its_command_and_leaves_nothing(cluster, driver, tmp_path):
    (tmp_path / "tree.py").write_text(TREE)
    commands = [f"python tree.py {tmp_path}/a apart", f"python tree.py {tmp_path}/b beside"]
    process = driver("wrap", "--ray_address", cluster.address, "--", *commands)
    of_worker, of_keeper = tree(tmp_path / "a"), tree(tmp_path / "b")
    workers = [one for node in cluster.nodes for one in node.processes() if _runs_first(one)]
    assert len(workers) == 1
    workers[0].kill()
    of_keeper[2].kill()
    processes = [*of_worker, *of_keeper]
    wait_until(lambda: not any(map(alive, processes)), 60, "all of the commands to be gone")
    output, _ = process.communicate(timeout=90 * PATIENCE)
    assert process.returncode == 1, output
    assert "[0] its Ray worker was killed" in output
    assert "[1] the process that guarded it was killed" in output


def _runs_first(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):
        return "ray::wrap [0]" in " ".join(process.cmdline())
    return False
