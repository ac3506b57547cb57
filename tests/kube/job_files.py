"""Templates of jobs that run shell commands, for tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from tests.kube.stand_in.job_objects import API_VERSION


def task(kind: str, command: str, replicas: int = 1) -> dict[str, Any]:
    """Make a task that runs a shell command; one of type none is called serial."""
    container = {"name": "di-container", "image": "none", "command": ["bash", "-c", command]}
    pod = {"containers": [container], "terminationGracePeriodSeconds": 1}
    name = {"name": "serial"} if kind == "none" else {}
    return {"type": kind, **name, "replicas": replicas, "template": {"spec": pod}}


def dijob(name: str, *tasks: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    """Make a job that is not restarted."""
    return {
        "apiVersion": API_VERSION,
        "kind": "DIJob",
        "metadata": {"name": name, **metadata},
        "spec": {"backoffLimit": 0, "cleanPodPolicy": "None", "tasks": list(tasks)},
    }


def write_job(folder: Path, name: str, command: str) -> str:
    """Write the template of a job with one task, and return its path."""
    return write(folder, dijob(name, task("none", command)))


def write(folder: Path, *documents: dict[str, Any]) -> str:
    """Write documents into a file by the first one's name, and return its path."""
    path = folder / f"{documents[0]['metadata']['name']}.yaml"
    path.write_text(yaml.safe_dump_all(documents))
    return str(path)
