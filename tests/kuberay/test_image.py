"""cluster_configs/Dockerfile, which cannot be built where there is no Docker, and all scripts."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCKERFILE = ROOT / "cluster_configs" / "Dockerfile"
SETUP = ROOT / "scripts" / "setup_env.sh"
SCRIPTS = [*ROOT.glob("scripts/*.sh"), *ROOT.glob("cluster_configs/*.sh"), ROOT / ".ci" / "run"]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@dataclass(frozen=True)
class Step:
    """An instruction of the Dockerfile, on one line."""

    name: str
    text: str


def steps(name: str = "") -> list[Step]:
    """Return the Dockerfile's instructions, or those of one kind."""
    lines = [line for line in DOCKERFILE.read_text().splitlines() if not line.startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    found = [Step(*line.split(maxsplit=1)) for line in joined.splitlines() if line.strip()]
    return [step for step in found if name in ("", step.name)]


def copied() -> list[str]:
    """Return what is copied from the checkout."""
    words = [shlex.split(step.text) for step in steps("COPY")]
    return [source for step in words for source in step[:-1] if not source.startswith("--")]


def run_checker(program: str, *arguments: str) -> None:
    checker = Path(sys.executable).with_name(program)
    checked = subprocess.run([str(checker), *arguments], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_hadolint_has_nothing_to_say():
    run_checker("hadolint", "--no-color", str(DOCKERFILE))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_shellcheck_has_nothing_to_say(script):
    run_checker("shellcheck", str(script))


def test_every_base_is_pinned_by_version_and_digest_or_is_a_stage():
    stages = {"${VARIANT}"}
    for step in steps("FROM"):
        base, _, name = step.text.partition(" AS ")
        assert base in stages or re.fullmatch(r"[a-z/]+:[\d.]+-[\w-]+@sha256:[0-9a-f]{64}", base)
        stages.add(name)
    assert {"gpu", "cpu"} <= stages
    assert steps("ARG")[0].text == "VARIANT=gpu"


def test_its_python_is_one_that_the_project_admits():
    version = re.search(r"python:(\d+\.\d+)", steps("FROM")[0].text)
    assert PROJECT["requires-python"] == f">={version[1]}"


def test_it_runs_as_the_user_that_kubernetes_and_rays_images_expect():
    assert [step.text for step in steps("USER")] == ["1000"]
    assert any("useradd --uid 1000" in step.text for step in steps("RUN"))


def test_what_it_copies_is_there_and_is_let_through_and_nothing_else_is():
    allowed = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line]
    allowed = [line for line in allowed if not line.startswith("#")]
    assert allowed[0] == "*"
    let_through = {line[1:].rstrip("/") for line in allowed if line.startswith("!")}
    assert {source.split("/")[0] for source in copied()} == let_through
    assert [source for source in copied() if not (ROOT / source).exists()] == []
    assert not any("ADD" in step.name or "--from" in step.text for step in steps())


def test_it_is_installed_by_the_script_that_everybody_uses_with_settings_that_it_has():
    (install,) = [step.text for step in steps("RUN") if "setup_env.sh" in step.text]
    assert not any("pip install" in step.text or "curl" in step.text for step in steps("RUN"))
    settings = dict(re.findall(r"(?<=[ &])([A-Z_]+)=(\S*)", install))
    settings |= {step.text.split("=")[0]: "" for step in steps("ARG") if step.text[-1] == "="}
    ours = {name for name in settings if not name.startswith("PIP_")}
    assert ours <= set(re.findall(r"^#   ([A-Z]+) ", SETUP.read_text(), re.MULTILINE))
    assert ours <= set(re.findall(r"\$\{([A-Z]+):-", SETUP.read_text()))
    extras = settings["EXTRAS"].split(",")
    assert set(extras) <= PROJECT["optional-dependencies"].keys()
    assert "engine" in extras
    assert "dev" not in extras


def test_versions_come_before_code_so_that_new_code_installs_nothing_anew():
    order = [step.text for step in steps() if step.name in ("COPY", "RUN")]
    install = next(place for place, text in enumerate(order) if "setup_env.sh /" in text)
    needed = ("pyproject.toml", "requirements/", "scripts/setup_env.sh")
    assert all(any(name in text for text in order[:install]) for name in needed)
    assert not any("ditk_ray/ ditk_ray/" in text for text in order[:install])


def test_ray_is_on_the_path_of_plain_shells_and_of_login_shells():
    assert any("PATH=/opt/ditk_ray/.venv/bin:$PATH" in step.text for step in steps("ENV"))
    assert any("/etc/profile.d/" in step.text for step in steps("RUN"))
    assert [step.text for step in steps("WORKDIR")] == ["/opt/ditk_ray"]


def test_it_has_what_kuberay_and_ray_up_call_in_it():
    (packages,) = [step.text for step in steps("RUN") if "apt-get install" in step.text]
    assert {"wget", "rsync", "git"} <= set(packages.split())


def test_its_label_says_the_projects_version():
    assert f'version="{PROJECT["version"]}"' in steps("LABEL")[0].text
    for file in (DOCKERFILE, ROOT / "docs" / "clusters.md"):
        named = re.findall(r"REGISTRY/ditk-ray:([\d.]+)-", file.read_text())
        assert set(named) == {PROJECT["version"]}
