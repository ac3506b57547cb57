"""What is written beside a sweep about where it comes from."""

from __future__ import annotations

import json
import os
import platform
import shutil
import socket
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ditk_ray.provenance import snapshot
from ditk_ray.provenance.snapshot import describe_origin, write_provenance
from tests.provenance.repositories import add, git, new_repository, stand_in


@pytest.fixture(autouse=True)
def no_settings_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")


@pytest.fixture
def facts(tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """Write and read the provenance of a sweep."""

    def write(command: Any = (), resources: Any = (), **places: Path) -> dict[str, Any]:
        folder = write_provenance(tmp_path / "sweep", places, dict(resources), command)
        assert folder == tmp_path / "sweep/provenance"
        read = json.loads((folder / "provenance.json").read_text())
        assert isinstance(read, dict)
        return read

    return write


def test_the_machine_and_the_python_are_told(facts: Any) -> None:
    told = facts(["ditk-ray", "tune"], {"trial": {"CPU": 1.0}})

    assert told["version"] == 1
    assert datetime.now(UTC) - datetime.fromisoformat(told["time"]) < timedelta(minutes=5)
    assert told["command"] == ["ditk-ray", "tune"]
    assert told["resources"] == {"trial": {"CPU": 1.0}}
    assert told["working_directory"] == str(Path.cwd())
    assert told["python"]["version"] == platform.python_version()
    assert told["python"]["executable"] == sys.executable
    assert told["host"]["name"] == socket.gethostname()
    assert told["host"]["cpus"] == os.cpu_count()
    assert told["host"]["memory"] > 2**28
    assert told["ray"] == version("ray")
    assert told["packages"]["numpy"] == version("numpy")
    assert told["notes"] == []


def test_packages_are_not_imported_for_it() -> None:
    before = set(sys.modules)

    snapshot.packages()

    assert not {name.partition(".")[0] for name in set(sys.modules) - before} & {"torch", "wandb"}


def test_a_distribution_without_a_name_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [SimpleNamespace(name=name, version="1.0") for name in (None, "b", "A")]
    monkeypatch.setattr("importlib.metadata.distributions", lambda: found)

    assert snapshot.packages() == {"A": "1.0", "b": "1.0"}


@pytest.mark.parametrize("name", ["packages", "host"])
def test_what_cannot_be_found_out_about_the_machine_is_a_note(
    facts: Any, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    def fail() -> None:
        raise ValueError("odd")

    monkeypatch.setattr(snapshot, {"packages": "packages", "host": "_host"}[name], fail)

    told = facts()

    assert not told[name]
    assert told["notes"] == [f"{name}: odd"]
    assert told["python"]["version"] == platform.python_version()


def test_secrets_of_the_command_are_masked(facts: Any) -> None:
    command = ["ditk-ray", "--mlflow_uri", "http://me:hunter2@host", "--token", "correcthorse"]

    assert facts(command)["command"] == [
        *("ditk-ray", "--mlflow_uri", "http://me:***@host", "--token", "***")
    ]


def test_a_command_that_is_no_text_is_written(facts: Any) -> None:
    assert facts([os.fsdecode(b"caf\xe9")])["command"] == ["caf\\udce9"]


def test_only_chosen_variables_are_told(facts: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    monkeypatch.setenv("RAY_ADDRESS", "ray://me:hunter2@host:10001")
    monkeypatch.setenv("SOME_VARIABLE", "something of mine")

    told = facts()

    assert told["environment"]["CUDA_VISIBLE_DEVICES"] == "0,1"
    assert told["environment"]["RAY_ADDRESS"] == "ray://me:***@host:10001"
    assert "something of mine" not in json.dumps(told)


SMI = """case "$*" in
  *--query-gpu=index,name,uuid,memory.total,driver_version*--format=csv,noheader*) ;;
  *) exit 2 ;;
esac
echo '0, NVIDIA A100-SXM4-80GB, GPU-1a2b, 81920 MiB, 550.54.15'
echo '1, NVIDIA A100-SXM4-80GB, GPU-3c4d, 81920 MiB, 550.54.15'"""


def path_with(folder: Path) -> str:
    return f"{folder}{os.pathsep}{os.environ['PATH']}"


def test_gpus_are_told_as_a_stand_in_for_nvidia_smi_prints_them(
    facts: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", path_with(stand_in(tmp_path / "bin", "nvidia-smi", SMI)))

    first, second = facts()["gpus"]

    assert first == {
        "index": "0",
        "name": "NVIDIA A100-SXM4-80GB",
        "uuid": "GPU-1a2b",
        "memory.total": "81920 MiB",
        "driver_version": "550.54.15",
    }
    assert second["index"] == "1"


@pytest.mark.parametrize(
    ("script", "note"),
    [
        ("echo 'Failed to initialize NVML' >&2; exit 18", "gpus: Failed to initialize NVML"),
        ("exec /bin/sleep 100", "gpus: nvidia-smi took longer than 0.4 s"),
    ],
    ids=["fails", "hangs"],
)
def test_a_stand_in_for_nvidia_smi_that_fails_is_a_note(
    facts: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, note: str
) -> None:
    monkeypatch.setenv("PATH", path_with(stand_in(tmp_path / "bin", "nvidia-smi", script)))
    monkeypatch.setattr(snapshot, "GPU_SECONDS", 0.4)

    told = facts()

    assert told["gpus"] == []
    assert told["notes"] == [note]


def test_places_in_one_repository_are_told_once(facts: Any, tmp_path: Path) -> None:
    repo = new_repository(tmp_path / "repo", {"a.py": "a = 1\n"})

    told = facts(ditk_ray=repo / "a.py", user=repo)

    (only,) = told["repositories"]
    assert only["root"] == str(repo)
    assert only["labels"] == ["ditk_ray", "user"]
    assert only["commit"] == git(repo, "rev-parse", "HEAD")
    assert only["diff"] is None
    assert told["outside_of_repositories"] == {}


def test_each_repository_with_changes_has_its_diff(facts: Any, tmp_path: Path) -> None:
    ours = new_repository(tmp_path / "ours", {"a.py": "a = 1\n"})
    users = new_repository(tmp_path / "users", {"b.py": "b = 1\n"})
    add(users, {"b.py": "b = 2\n"})

    told = facts(ditk_ray=ours, user=users)

    assert [repository["diff"] for repository in told["repositories"]] == [None, "user.diff"]
    folder = tmp_path / "sweep/provenance"
    assert "+b = 2\n" in (folder / "user.diff").read_text()
    assert sorted(file.name for file in folder.iterdir()) == ["provenance.json", "user.diff"]


def test_a_place_outside_of_any_repository_is_told(facts: Any, tmp_path: Path) -> None:
    told = facts(user=tmp_path, config=tmp_path / "missing", odd=Path("a\0b"))

    assert told["repositories"] == []
    notes = {label: told["outside_of_repositories"][label]["note"] for label in ("user", "config")}
    assert "not a git repository" in notes["user"]
    assert notes["config"] == "it does not exist"
    assert "odd" in told["outside_of_repositories"]


def test_a_link_in_a_circle_is_told(facts: Any, tmp_path: Path) -> None:
    (tmp_path / "circle").symlink_to(tmp_path / "circle")

    assert "circle" in facts(circle=tmp_path / "circle")["outside_of_repositories"]


def test_a_sweep_that_is_continued_replaces_it(facts: Any, tmp_path: Path) -> None:
    repo = new_repository(tmp_path / "repo", {"a.py": "a = 1\n"})
    (repo / "a.py").write_text("a = 2\n")
    facts(user=repo)
    git(repo, "checkout", "--quiet", "a.py")

    told = facts(user=repo)

    assert told["repositories"][0]["diff"] is None
    assert [file.name for file in (tmp_path / "sweep/provenance").iterdir()] == ["provenance.json"]


def test_labels_become_names_of_files(tmp_path: Path) -> None:
    places = {}
    for number, label in enumerate(["working directory", "working/directory", "../.."]):
        places[label] = new_repository(tmp_path / str(number), {"a.py": "a = 1\n"})
        (places[label] / "a.py").write_text("a = 2\n")

    folder = write_provenance(tmp_path / "sweep", places, {}, [])

    assert sorted(file.name for file in folder.glob("*.diff")) == [
        *("repository.diff", "working_directory.diff", "working_directory_2.diff")
    ]


def test_a_working_directory_that_is_gone_is_a_note(
    facts: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()

    told = facts(user=tmp_path)

    assert told["working_directory"] is None
    assert told["notes"][0].startswith("working directory: ")


def test_a_folder_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "sweep").write_text("no folder")

    with pytest.raises(OSError, match="sweep"):
        write_provenance(tmp_path / "sweep", {}, {}, [])


@pytest.fixture
def project(tmp_path: Path) -> Path:
    project = new_repository(tmp_path / "project", {"job.py": "a = 1\n"})
    (project / "job.py").write_text("a = 2\n")
    return project


def shipped(project: Path, there: Path) -> Path:
    """Copy a project as a cluster gets it: without its repository, with its origin."""
    shutil.copytree(project, there, ignore=shutil.ignore_patterns(".git"))
    for name, data in describe_origin(project).items():
        (there / name).parent.mkdir(exist_ok=True)
        (there / name).write_bytes(data)
    return there


def test_a_sweep_of_shipped_code_tells_the_commit_and_the_changes(tmp_path, project, monkeypatch):
    there = shipped(project, tmp_path / "there")
    monkeypatch.chdir(there)

    places = {"working directory": there, "job": there / "job.py"}
    folder = write_provenance(tmp_path / "sweep", places, {}, [])

    told = json.loads((folder / "provenance.json").read_text())
    (origin,) = [one for one in told["repositories"] if one["root"] == str(project)]
    assert origin["commit"] == git(project, "rev-parse", "HEAD")
    assert "working directory" in origin["labels"]
    assert "+a = 2" in (folder / origin["diff"]).read_text()
    assert told["submitted_from"] == str(project)
    assert told["outside_of_repositories"] == {}


@pytest.mark.parametrize("text", ["", "[]", '{"repositories": 3, "folder": "x"}', '{"a": 1}'])
def test_an_origin_that_cannot_be_read_changes_nothing(tmp_path, monkeypatch, text):
    (tmp_path / "there/.ditk_ray_origin").mkdir(parents=True)
    (tmp_path / "there/.ditk_ray_origin/origin.json").write_text(text)
    monkeypatch.chdir(tmp_path / "there")

    folder = write_provenance(tmp_path / "sweep", {"here": tmp_path / "there"}, {}, [])

    told = json.loads((folder / "provenance.json").read_text())
    assert told["repositories"] == []
    assert list(told["outside_of_repositories"]) == ["here"]


def test_the_same_code_has_the_same_origin(project):
    assert describe_origin(project) == describe_origin(project)
