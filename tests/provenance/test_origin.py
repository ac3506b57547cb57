"""What shipped code knows of the repository it comes from."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from ditk_ray.provenance.origin import describe_origin
from ditk_ray.provenance.snapshot import write_provenance
from tests.provenance.repositories import git, new_repository


@pytest.fixture(autouse=True)
def no_settings_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")


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
