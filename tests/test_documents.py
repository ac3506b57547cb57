"""Every command of the README, run as it stands there."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.ray

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text()

# Run here by other means: the first sets up a shell, the second is this very test run.
ELSEWHERE = {"source .venv/bin/activate", "make test"}


def commands() -> Iterator[str]:
    for block in re.findall(r"```bash\n(.*?)```", README, re.DOTALL):
        for line in block.splitlines():
            command = line.partition("#")[0].strip()
            if command:
                yield command


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the README's own job in it."""
    folder = tmp_path_factory.mktemp("readme")
    (job,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    (folder / "my_job.py").write_text(job)
    return folder


def run(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        shlex.split(command),
        cwd=folder,
        env=os.environ | {"PATH": path},
        capture_output=True,
        text=True,
        timeout=280,
    )


def test_make_tune_reaches_195_within_four_minutes(tmp_path):
    """`make tune` is `python scripts/tune.py --cfg_class CartpoleDQNJobCfg`."""
    shown = run(f"make tune ARGS='--storage_path {tmp_path} --name tuned'", ROOT)
    assert shown.returncode == 0, shown.stderr
    record = json.loads((tmp_path / "tuned/sweep.json").read_text())
    assert len(record["trials"]) >= 8
    assert record["best"]["score"] >= 195
    assert "best: " in shown.stdout
    assert "make tune" in commands()
    assert "python scripts/tune.py --cfg_class CartpoleDQNJobCfg" in commands()


@pytest.mark.parametrize(
    "command",
    [c for c in commands() if c.startswith("ditk-ray")],
)
def test_a_command_of_the_readme_works(command, folder):
    shown = run(command, folder)
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout


def test_the_readmes_wrong_input_is_refused_as_it_says(folder):
    lines = re.search(r"```text\n\$ (.*?)\n(error: .*?)```", README, re.DOTALL)
    assert lines is not None
    shown = run(lines[1], folder)
    assert shown.returncode == 2
    assert shown.stderr.endswith(lines[2])


def test_no_command_of_the_readme_is_left_out():
    run_here = {c for c in commands() if c.startswith(("ditk-ray", "make tune", "python scripts"))}
    assert set(commands()) - run_here == ELSEWHERE
