"""Real git repositories to look at."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

ENVIRONMENT = {
    **os.environ,
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_AUTHOR_DATE": "2026-01-01T00:00:00Z",
    "GIT_COMMITTER_DATE": "2026-01-01T00:00:00Z",
}


def git(folder: Path, *arguments: str) -> str:
    """Run git as a user with no settings of his own, and return what it prints."""
    settings = ("-c", "user.name=Tester", "-c", "user.email=tester@example.org")
    done = subprocess.run(
        ["git", *settings, *arguments],
        cwd=folder,
        env=ENVIRONMENT,
        check=True,
        capture_output=True,
    )
    return os.fsdecode(done.stdout).strip()


def new_repository(folder: Path, files: dict[str, str] | None = None) -> Path:
    """Make a repository on branch `main`, with a commit if there are files for it."""
    folder.mkdir(parents=True)
    git(folder, "init", "--quiet", "--initial-branch=main")
    if files:
        add(folder, files)
        git(folder, "commit", "--quiet", "--message=first")
    return folder


def add(folder: Path, files: dict[str, str]) -> None:
    """Write files and stage them."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    git(folder, "add", "--force", "--", *files)


def stand_in(folder: Path, name: str, script: str) -> Path:
    """Write a shell script that stands in for a program, in a folder for PATH."""
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / name
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return folder
