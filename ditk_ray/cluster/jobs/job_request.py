"""A job to be sent to a cluster: an argument list, and what it runs with."""

from __future__ import annotations

import re
import secrets
import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from ditk_ray.cluster.jobs.code_package import CodePackage

_OWN_PROGRAM = ("python", "-m", "ditk_ray.cli.main")
_PYTHONS = re.compile(r"python[\d.]*")
_NAME_LENGTH = 30


@dataclass(frozen=True)
class JobRequest:
    """One job: its id, which is ours, so that asking twice starts it once, and its command."""

    id: str
    command: tuple[str, ...]

    def __str__(self) -> str:
        return shlex.join(self.command)


@dataclass(frozen=True)
class JobSettings:
    """What all jobs of a call have in common."""

    working_dir: CodePackage
    modules: tuple[CodePackage, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    metadata: Mapping[str, str] = field(default_factory=dict)
    cpus: float | None = None
    gpus: float | None = None
    memory: int | None = None
    """What the job's own program is given, in bytes; Ray gives it nothing by default."""

    @property
    def packages(self) -> tuple[CodePackage, ...]:
        """All that a cluster has to have before a job can start."""
        return (self.working_dir, *self.modules)

    def body(self, job: JobRequest) -> dict[str, Any]:
        """Return the request that Ray's job API takes.

        The API takes a line for a shell: each word of the command is quoted, so that the
        program gets the very words.
        """
        environment: dict[str, Any] = {"working_dir": self.working_dir.uri}
        if self.modules:
            environment["py_modules"] = [package.uri for package in self.modules]
        if self.env:
            environment["env_vars"] = dict(self.env)
        resources = {
            "entrypoint_num_cpus": self.cpus,
            "entrypoint_num_gpus": self.gpus,
            "entrypoint_memory": self.memory,
        }
        return {
            "entrypoint": shlex.join(job.command),
            "runtime_env": environment,
            "metadata": dict(self.metadata),
            **{name: amount for name, amount in resources.items() if amount is not None},
        }


def make_job(words: Sequence[str], own_commands: Collection[str]) -> JobRequest:
    """Return a job of some words: a command of `ditk-ray`, or any program.

    A command of ours runs with the version that is shipped, whatever is installed there.
    """
    own = words[1:] if words[0] == "ditk-ray" else words
    if own and own[0] in own_commands:
        return JobRequest(_new_id(own[0]), (*_OWN_PROGRAM, *own))
    return JobRequest(_new_id(_program_name(words)), tuple(words))


def is_own(job: JobRequest) -> bool:
    """Say whether a job is a command of ditk-ray, which needs what ditk-ray needs."""
    return job.command[: len(_OWN_PROGRAM)] == _OWN_PROGRAM


def _program_name(words: Sequence[str]) -> str:
    """Return the name of what runs: of `python train.py` that is `train`."""
    first = PurePosixPath(words[0]).name
    if _PYTHONS.fullmatch(first):
        files = [word for word in words[1:] if not word.startswith("-")]
        first = PurePosixPath(files[0]).stem if files else first
    return first


def _new_id(name: str) -> str:
    letters = re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-").lower()[:_NAME_LENGTH]
    return f"{letters or 'job'}-{secrets.token_hex(5)}"
