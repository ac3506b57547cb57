"""Every command of the README and of docs/, run as it stands there and in that order."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from tests.kube.api_server import ApiServer
from tests.kube.stand_in import StandInCluster
from tests.processes import PATIENCE, wait_until

pytestmark = pytest.mark.ray

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
KUBERNETES = ROOT / "docs" / "kubernetes.md"
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


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[Path, Path]:
    """Return a folder for each document, with the document's own job in it."""
    made = {document: tmp_path_factory.mktemp(document.stem) for document in DOCUMENTS}
    (job,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    (made[README] / "my_job.py").write_text(job)
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
    with StandInCluster(server, "rl", tmp_path_factory.mktemp("pods")):
        yield {"KUBECONFIG": str(kubeconfig)}


def run(command: str, folder: Path, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        shlex.split(command),
        cwd=folder,
        env=environment() | more,
        capture_output=True,
        text=True,
        timeout=280 * PATIENCE,
    )


def test_make_tune_reaches_195_within_four_minutes(tmp_path):
    """`make tune` is `python scripts/tune.py --cfg_class CartpoleDQNJobCfg`."""
    shown = run(f"make tune ARGS='--storage_path {tmp_path} --name tuned'", ROOT)
    assert shown.returncode == 0, shown.stderr
    record = json.loads((tmp_path / "tuned/sweep.json").read_text())
    assert len(record["trials"]) >= 8
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
        if command.startswith(("ditk-ray", "timeout")) and command not in ELSEWHERE
    ],
)
def test_a_command_of_the_documents_works(document, command, folders, background, request):
    if document == KUBERNETES:
        shown = run(command, folders[document], **request.getfixturevalue("cluster"))
        assert shown.returncode == 0, shown.stderr
    elif command.startswith(SERVING):
        assert_serves(command, folders[document])
    elif command.endswith("&"):
        background(command.removesuffix("&"), folders[document])
    elif command.startswith("timeout --signal=KILL"):
        assert run(command, folders[document]).returncode == -signal.SIGKILL
    else:
        shown = run(command, folders[document])
        assert shown.returncode == 0, shown.stderr
        assert shown.stdout


@pytest.fixture(scope="module")
def background() -> Iterator[Callable[[str, Path], None]]:
    """Start sweeps that further commands act on, until the first trial of each runs."""
    started: list[subprocess.Popen[bytes]] = []

    def start(command: str, folder: Path) -> None:
        words = shlex.split(command)
        process = subprocess.Popen(
            words, cwd=folder, env=environment(), stderr=subprocess.DEVNULL, stdout=subprocess.PIPE
        )
        started.append(process)
        metrics = folder / "ditk_ray_results" / words[words.index("--name") + 1]
        wait_until(lambda: list(metrics.glob("*/metrics.jsonl")), 120, "the first evaluation")

    yield start
    for process in started:
        process.communicate(timeout=60)  # the documents end what they start


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
    process.wait(30)
    assert "http://127.0.0.1:" in said, said


def test_the_readmes_wrong_input_is_refused_as_it_says(folders):
    lines = re.search(r"```text\n\$ (.*?)\n(error: .*?)```", README.read_text(), re.DOTALL)
    assert lines is not None
    shown = run(lines[1], folders[README])
    assert shown.returncode == 2
    assert shown.stderr.endswith(lines[2])


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document.stem)
def test_no_command_is_left_out_and_no_picture_or_page_is_missing(document):
    run_here = ("ditk-ray", "timeout", "make tune", "python scripts")
    assert {c for c in commands(document) if not c.startswith(run_here)} <= ELSEWHERE
    for target in re.findall(r"\]\((?!https?://)([^)#]+)\)", document.read_text()):
        assert (document.parent / target).exists(), target
