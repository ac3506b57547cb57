"""Jobs for Ray clusters: their options, their requests, and their states."""

from __future__ import annotations

import os
import re
import secrets
import shlex
import ssl
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal

from pydantic import Field

from ditk_ray.config.checked import Text, check, read_file
from ditk_ray.config.options import option, positive, seconds
from ditk_ray.errors import BadConfigError, Problem
from ditk_ray.kube.yaml_text import read_yaml
from ditk_ray.submit.clusters import KnownCluster
from ditk_ray.submit.code import CodePackage
from ditk_ray.util.units import parse_bytes

_OWN_PROGRAM = ("python", "-m", "ditk_ray.cli.main")
_INTERPRETER_OR_FLAG = re.compile(r"(.*/)?python[\d.]*|-.*")
_Jobs = Annotated[list[Annotated[list[Text], Field(min_length=1)]], Field(min_length=1)]
_WHERE, _WHAT, _HOW = "where to run it", "what to send", "how to follow it"


@dataclass(frozen=True, kw_only=True)
class SubmitOptions:
    """Where jobs go, what they run with, and how they are followed."""

    cluster: list[str] = option("cluster name (repeatable)", [], metavar="NAME", group=_WHERE)
    address: list[str] = option("dashboard address (repeatable)", [], metavar="URL", group=_WHERE)
    config_file: Path | None = option("(default: ~/.cluster_config)", metavar="FILE", group=_WHERE)
    ca_cert: Path | None = option(
        "CA certificate to trust with https", metavar="FILE", group=_WHERE
    )
    insecure: bool = option("accept any certificate", False, group=_WHERE)

    jobs: Path | None = option("YAML or JSON of argument lists", metavar="FILE", group=_WHAT)
    working_dir: Path = option("(default: this folder)", Path(), metavar="DIR", group=_WHAT)
    env: list[str] = option(
        "a variable of the job; without =V the value that it has here, so that a secret is in "
        "no list of processes (repeatable)",
        [],
        metavar="K[=V]",
        group=_WHAT,
    )
    metadata: list[str] = option("metadata of the job (repeatable)", [], metavar="K=V", group=_WHAT)
    entrypoint_cpus: float | None = option("CPUs for the job's program", metavar="N", group=_WHAT)
    entrypoint_gpus: float | None = option("GPUs for it", metavar="N", group=_WHAT)
    entrypoint_memory: int | None = option(
        "memory for it, such as 4G", metavar="SIZE", parse=parse_bytes, group=_WHAT
    )

    jobs_per_cluster: int = option(
        "jobs at once on each cluster (default: 1)", 1, metavar="N", parse=positive, group=_HOW
    )
    no_wait: bool = option("print the ids and exit", False, group=_HOW)
    on_interrupt: Literal["detach", "stop"] = option(
        "what Ctrl-C does to the jobs (default: detach, they continue)", "detach", group=_HOW
    )
    lost_after: float = option(
        "limit without an answer (default: 60s)", 60.0, metavar="TIME", parse=seconds, group=_HOW
    )

    def request(self) -> dict[str, Any]:
        """Return what the requests of all jobs have in common; BadConfigError if it is wrong."""
        own = [f"{text}={os.environ[text]}" if text in os.environ else text for text in self.env]
        what = "has to be NAME=VALUE, or the name of a variable that is set here"
        variables = _pairs("env", own, what)
        resources = {  # Ray gives a job's own program nothing by default
            "entrypoint_num_cpus": self.entrypoint_cpus,
            "entrypoint_num_gpus": self.entrypoint_gpus,
            "entrypoint_memory": self.entrypoint_memory,
        }
        return {
            "runtime_env": {"env_vars": variables} if variables else {},
            "metadata": _pairs("metadata", self.metadata),
            **{name: amount for name, amount in resources.items() if amount is not None},
        }

    def body(self, job: Job, packages: Sequence[CodePackage]) -> dict[str, Any]:
        """Return the request that starts a job; the first package is its working directory.

        The job API takes a line for a shell: each word of the command is quoted, so that the
        program gets the very words.
        """
        request = self.request()
        folder, *modules = [package.uri for package in packages]
        request["runtime_env"]["working_dir"] = folder
        if modules:
            request["runtime_env"]["py_modules"] = modules
        return {**request, "entrypoint": shlex.join(job.command)}

    def trusted(self) -> ssl.SSLContext | bool:
        """Return which certificates to trust, for aiohttp."""
        if self.insecure or self.ca_cert is None:
            return not self.insecure
        try:
            return ssl.create_default_context(cafile=str(self.ca_cert))
        except OSError as error:  # ssl's own errors among them
            where = f"--ca_cert {self.ca_cert}"
            raise BadConfigError(Problem(where, f"cannot be used: {error}")) from error


def _pairs(flag: str, given: Sequence[str], what: str = "has to be NAME=VALUE") -> dict[str, str]:
    if wrong := [text for text in given if text.find("=") < 1]:
        raise BadConfigError(Problem(f"--{flag} {text}", what) for text in wrong)
    return dict(text.split("=", 1) for text in given)


@dataclass(frozen=True)
class Job:
    """One job: its id, which is ours, so that asking twice starts it once, and its command."""

    id: str
    command: tuple[str, ...]

    @property
    def is_own(self) -> bool:
        """Whether it is a command of ditk-ray, which needs what ditk-ray needs."""
        return self.command[: len(_OWN_PROGRAM)] == _OWN_PROGRAM

    def __str__(self) -> str:
        return shlex.join(self.command)


def make_job(words: Sequence[str], own_commands: Collection[str]) -> Job:
    """Return a job of some words: a command of `ditk-ray`, or any program.

    A command of ours runs with the version that is shipped, whatever is installed there.
    """
    own = words[1:] if words[0] == "ditk-ray" else words
    command = (*_OWN_PROGRAM, *own) if own and own[0] in own_commands else tuple(words)
    # Of `python train.py` that is `train`.
    program = next((word for word in own if not _INTERPRETER_OR_FLAG.fullmatch(word)), words[0])
    name = re.sub(r"[^a-z0-9]+", "-", PurePosixPath(program).stem.lower()).strip("-")[:30]
    return Job(f"{name or 'job'}-{secrets.token_hex(5)}", command)


def split_words(words: Sequence[str], separator: str = "---") -> list[list[str]]:
    """Return the argument lists between separators; BadConfigError if one is empty."""
    groups = groupby(words, separator.__eq__)
    jobs = [list(group) for is_separator, group in groups if not is_separator]
    if len(jobs) != list(words).count(separator) + 1:
        what = f"there is no command before or after a {separator!r}"
        raise BadConfigError(Problem("JOB", what, f"write A {separator} B for two jobs"))
    return jobs


def read_jobs(path: Path) -> list[list[str]]:
    """Return the argument lists of a YAML or JSON file; BadConfigError names all mistakes."""
    found = read_file("--jobs", path, read_yaml)
    hint = "write a list of argument lists: [[tune, --cfg_class, A], [python, train.py]]"
    jobs: list[list[str]] = check(_Jobs, found, f"--jobs {path}", (), hint)
    return jobs


class JobStatus(StrEnum):
    """Ray's words for it, and two of our own: LOST with its cluster, UNSENT to any."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    STOPPED = "STOPPED"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    LOST = "LOST"
    UNSENT = "UNSENT"

    @property
    def is_final(self) -> bool:
        return self not in (JobStatus.PENDING, JobStatus.RUNNING)


@dataclass(frozen=True)
class JobState:
    """What is known of a job: the cluster that has it, if one has; times in seconds since 1970."""

    id: str
    status: JobStatus
    cluster: KnownCluster | None = None
    entrypoint: str = ""
    message: str = ""
    exit_code: int | None = None
    started: float | None = None
    ended: float | None = None
    metadata: Mapping[str, str] | None = None

    @classmethod
    def of(cls, cluster: KnownCluster, answer: Mapping[str, Any]) -> JobState:
        """Read what a cluster says of a job; one that was not submitted has no id."""
        return cls(
            id=answer.get("submission_id") or "",
            status=JobStatus(answer["status"]),
            cluster=cluster,
            entrypoint=answer.get("entrypoint") or "",
            message=answer.get("message") or "",
            exit_code=answer.get("driver_exit_code"),
            started=(answer.get("start_time") or 0) / 1000 or None,
            ended=(answer.get("end_time") or 0) / 1000 or None,
            metadata=answer.get("metadata"),
        )

    @property
    def code(self) -> int:
        """The exit code to leave with for this job: 0 only if it succeeded."""
        if self.status is JobStatus.SUCCEEDED:
            return 0
        # A signal's is negative, which no process can leave with.
        return self.exit_code if self.exit_code and 0 < self.exit_code < 256 else 1

    @property
    def seconds(self) -> float | None:
        return self.ended - self.started if self.started and self.ended else None
