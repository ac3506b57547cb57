"""Every command of the README and of docs/, run as it stands there and in that order."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from ditk_ray.execution.fork_client import SHARED_KEY
from tests.inline import run_inline
from tests.kube.api_server import ApiServer
from tests.kube.simulated import training
from tests.kube.stand_in.cluster import StandInCluster
from tests.kube.stand_in.containers import Simulated
from tests.processes import PATIENCE, wait_until

pytestmark = pytest.mark.ray

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
KUBERNETES = ROOT / "docs" / "kubernetes.md"
SEARCH = ROOT / "docs" / "search.md"
TRACKING = ROOT / "docs" / "tracking.md"
CLUSTERS = ROOT / "docs" / "clusters.md"  # has its own surroundings, in test_cluster_document.py
DOCUMENTS = [README, *sorted((ROOT / "docs").glob("*.md"))]

# Run here by other means: the first sets up a shell, the second is this very test run,
# the next two take an hour or more, and the last is what `make tune` runs.
ELSEWHERE = {
    "source .venv/bin/activate",
    "make test",
    "make bench",
    "make chaos",
    "make chaos-kube",
    "ditk-ray tune --cfg_class CartpoleDQNJobCfg",
}

SERVING = ("ditk-ray ui", "ditk-ray tensorboard")
"""They run until they are interrupted."""

KILL = "kill -9 $!"
"""What a shell does to the command that it started in the background last."""


def commands(document: Path) -> Iterator[str]:
    for block in re.findall(r"```bash\n(.*?)```", document.read_text(), re.DOTALL):
        for line in block.splitlines():
            command = line.partition("#")[0].strip()
            if command:
                yield command


def once_each() -> dict[str, Path]:
    """Return all commands in their order, each with the document that it stands in last.

    What the README takes from docs/ is run there, where others build on it.
    """
    found: dict[str, Path] = {}
    for document in DOCUMENTS:
        for command in commands(document) if document != CLUSTERS else ():
            found.pop(command, None)
            found[command] = document
    return found


def environment() -> dict[str, str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return os.environ | {"PATH": path}


def shortened(job: str) -> str:
    """Have a job's sweep end soon; commands act on the one called `long` while it runs."""
    is_long = "'long' in __import__('sys').argv"
    job = re.sub(r"num_samples = \d+", f"num_samples = 4 if {is_long} else 2", job)
    steps = f"max_env_step = 10_000 if {is_long} else 320"
    shorter, count = re.subn(r"max_env_step = [0-9_]+", steps, job)
    assert count
    return shorter


CLIMB = """
import sys

from ditk_ray.execution.scripted import scripted


@scripted
def climb(config, seed=0, **limits):
    for step in range(1, 4):
        score = 60.0 * step + seed
        yield {"eval_value": score, "env_step": 100 * step, "train_iter": step, "time": 0.1 * step}
"""


def pretended(job: str) -> str:
    """Have a job's trials only seem to train, but where a scheduler takes them up again.

    They share an actor, which takes seconds to start.
    """
    entry = 'entry, max_concurrent = ("serial", None) if "pbt" in sys.argv else (climb, 1)\n'
    changed, count = re.subn('entry = "serial"\n', entry, job)
    assert count
    return CLIMB + changed


def write_small_jobs(folder: Path, is_pretended: bool = False) -> None:
    """Write the shipped jobs, shortened: a job of the working directory wins over a shipped one.

    `make tune` runs the shipped one as it is.
    """
    (folder / "job_cfgs").mkdir()
    shipped = ROOT / "job_cfgs" / "cartpole.py"
    job = shortened(shipped.read_text())
    (folder / "job_cfgs" / shipped.name).write_text(pretended(job) if is_pretended else job)


@pytest.fixture(scope="module")
def shared(ray_address: str, warm: Any) -> dict[str, str]:
    """Return an environment in which sweeps share the tests' Ray and fork server.

    They are not recorded, which takes seconds of each, except where the document is about that.
    """
    sharing = {"RAY_ADDRESS": ray_address, SHARED_KEY: warm.key}
    return environment() | sharing | {"MLFLOW_TRACKING_URI": "none"}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[Path, Path]:
    """Return a folder for each document, with the document's own job in it."""
    made = {document: tmp_path_factory.mktemp(document.stem) for document in DOCUMENTS}
    for document, folder in made.items():
        write_small_jobs(folder, is_pretended=document == SEARCH)
    (job,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    (made[README] / "my_job.py").write_text(shortened(job))
    (template,) = re.findall(r"```yaml\n(.*?)```", KUBERNETES.read_text(), re.DOTALL)
    (made[KUBERNETES] / "job.yaml").write_text(template)
    (made[KUBERNETES] / "my_config.py").write_text("print('nothing to train')\n")
    return made


@pytest.fixture(scope="module")
def cluster(
    _api_server: ApiServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, str]]:
    """Have a cluster with the rights of `rbac.yaml`; yields what leads a command there."""
    server = _api_server
    server.start()
    server.provide_namespace("rl")
    manifests = list(yaml.safe_load_all((ROOT / "cluster_configs/rbac.yaml").read_text()))
    (role,) = [item for item in manifests if item["kind"] == "Role"]
    server.grant("rl", "system:serviceaccount:rl:ditk-ray", role["rules"])
    kubeconfig = server.service_account_kubeconfig("rl", "ditk-ray")
    with StandInCluster(server, "rl", tmp_path_factory.mktemp("pods"), pod_of_a_sweep):
        yield {"KUBECONFIG": str(kubeconfig)}


def pod_of_a_sweep(pod: dict[str, Any]) -> Simulated | None:
    """Have the pods of sweeps only seem to train, which takes them seconds to begin with."""
    is_by_hand = pod["metadata"]["labels"]["diengine/job"] == "by-hand"
    return None if is_by_hand else training(10)(pod)


def run(
    command: str, folder: Path, surroundings: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    """Run a command in `folder`; one of ours in this process, which has imported Ray already."""
    words = shlex.split(command)
    if words[0] == "ditk-ray":
        return run_inline(words[1:], folder, surroundings)
    return subprocess.run(
        words,
        cwd=folder,
        env=surroundings,
        capture_output=True,
        text=True,
        timeout=280 * PATIENCE,
    )


@pytest.mark.parametrize(
    ("arguments", "trials"),
    [("--num_samples 2 --seed 3", 2), pytest.param("", 8, marks=pytest.mark.slow)],
)
def test_make_tune_reaches_195(tmp_path, arguments, trials):
    """`make tune` is `python scripts/tune.py --cfg_class CartpoleDQNJobCfg`."""
    arguments += f" --storage_path {tmp_path} --name tuned"
    shown = run(f"make tune ARGS='{arguments}'", ROOT, environment())
    assert shown.returncode == 0, shown.stderr
    record = json.loads((tmp_path / "tuned/sweep.json").read_text())
    assert len(record["trials"]) == trials
    assert record["best"]["score"] >= 195
    assert "best: " in shown.stdout
    assert "make tune" in commands(README)
    assert "python scripts/tune.py --cfg_class CartpoleDQNJobCfg" in commands(README)


@pytest.mark.parametrize(
    ("document", "command"),
    [
        pytest.param(
            document,
            command,
            id=f"{document.stem}: {command}",
            marks=[pytest.mark.kube] if document == KUBERNETES else [],
        )
        for command, document in once_each().items()
        if command.startswith(("ditk-ray", KILL)) and command not in ELSEWHERE
    ],
)
def test_a_command_of_the_documents_works(document, command, folders, shared, background, request):
    if document == TRACKING:
        shared = {name: shared[name] for name in shared if name != "MLFLOW_TRACKING_URI"}
    if document == KUBERNETES:
        surroundings = shared | request.getfixturevalue("cluster")
        shown = run(command, folders[document], surroundings)
        assert shown.returncode == 0, shown.stderr
        assert shown.stdout or "nothing is left over" in shown.stderr
    elif command.startswith(SERVING):
        assert_serves(command, folders[document])
    elif command.endswith("&"):
        background.start(command.removesuffix("&"), folders[document])
    elif command == KILL:
        background.kill_last()
    else:
        shown = run(command, folders[document], shared)
        assert shown.returncode == 0, shown.stderr
        assert shown.stdout


class Background:
    """Sweeps that further commands act on, until the documents end them."""

    def __init__(self, surroundings: dict[str, str]) -> None:
        self._surroundings = surroundings
        self._started: list[subprocess.Popen[bytes]] = []

    def start(self, command: str, folder: Path) -> None:
        """Start a sweep and wait for its first evaluation."""
        words = shlex.split(command)
        process = subprocess.Popen(
            words,
            cwd=folder,
            env=self._surroundings,
            stderr=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
        )
        self._started.append(process)
        metrics = folder / "ditk_ray_results" / words[words.index("--name") + 1]
        wait_until(lambda: list(metrics.glob("*/metrics.jsonl")), 120, "the first evaluation")

    def kill_last(self) -> None:
        self._started[-1].kill()
        self._started[-1].communicate()

    def close(self) -> None:
        """Wait for what the documents have ended; nothing is left if they have not."""
        try:
            for process in self._started:
                process.communicate(timeout=60 * PATIENCE)
        finally:
            for process in self._started:
                process.kill()
                process.communicate()


@pytest.fixture(scope="module")
def background(shared: dict[str, str]) -> Iterator[Background]:
    sweeps = Background(shared)
    yield sweeps
    sweeps.close()


def assert_serves(command: str, folder: Path) -> None:
    """Start a server, wait until it says where it is, and end it as a person does."""
    process = subprocess.Popen(
        shlex.split(command),
        cwd=folder,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    said = ""
    for line in process.stdout:
        said += line
        if "http://127.0.0.1:" in line:
            break
    process.send_signal(signal.SIGINT)
    said += process.stdout.read()
    process.wait(30 * PATIENCE)
    assert "http://127.0.0.1:" in said, said
    assert "read and delete" not in said, "others cannot reach it"
    assert process.returncode == 0


def test_the_readmes_wrong_input_is_refused_as_it_says(folders):
    lines = re.search(r"```text\n\$ (.*?)\n(error: .*?)```", README.read_text(), re.DOTALL)
    assert lines is not None
    shown = run(lines[1], folders[README], environment())
    assert shown.returncode == 2
    assert shown.stderr.endswith(lines[2])


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document.stem)
def test_no_command_is_left_out_and_no_picture_or_page_is_missing(document):
    run_here = ("ditk-ray", KILL, "make tune", "python scripts")
    assert {c for c in commands(document) if not c.startswith(run_here)} <= ELSEWHERE
    for target in re.findall(r"\]\((?!https?://)([^)#]+)\)", document.read_text()):
        assert (document.parent / target).exists(), target
