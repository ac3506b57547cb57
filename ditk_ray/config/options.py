"""Options: fields of a dataclass that are also flags, and those that several packages read.

A field is declared once, by `option`: `cli.flags` makes the flag of it, Python gives it as a
keyword, and it is saved with its class. Nothing heavy is imported here.
"""

from __future__ import annotations

import math
import os
import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from ditk_ray.errors import BadConfigError, Problem
from ditk_ray.util.units import parse_seconds

STORAGE_VARIABLE = "DITK_RAY_STORAGE"
_FOLDER = "ditk_ray_results"
_NAME = re.compile(r"[\w][\w.+-]*")
_UNSET: Any = object()


def option(
    help: str = "",
    default: Any = _UNSET,
    *,
    factory: Callable[[], Any] | None = None,
    group: str = "",
    metavar: str | None = None,
    parse: Callable[[str], Any] | None = None,
    flags: Sequence[str] | None = None,
    positional: bool = False,
    required: bool = False,
    nargs: str | None = None,
) -> Any:
    """Declare a field that is also a flag, `--` and its name unless `flags` are given.

    The flag follows from the field's type, of several from the first: a bool is a switch, a
    Literal or an enumeration a choice, a list or tuple may be given several times (with `nargs`:
    has several values), a Path and a number are read as such, and so is what `parse` reads, whose
    ValueError is shown. What has no `default` is None; a positional without one has to be given.
    `help` may contain `%(default)s`. Classes with options are declared with `kw_only=True`.
    """
    shown: dict[str, Any] = {"help": help, "group": group, "metavar": metavar}
    shown |= {"parse": parse, "flags": flags}
    shown |= {"positional": positional, "required": required, "nargs": nargs}
    if factory is not None:
        return field(default_factory=factory, metadata=shown)
    if isinstance(default, list):
        return field(default_factory=lambda: list(default), metadata=shown)
    if default is _UNSET and (positional or required):
        return field(metadata=shown)
    return field(default=None if default is _UNSET else default, metadata=shown)


def options_of(cls: type, group: str = "") -> Any:
    """Declare a field that holds another class with options, whose flags stand in its place."""
    return field(default_factory=cls, metadata={"group": group})


def whole_number(least: int, most: float = math.inf) -> Callable[[str], int]:
    """Return what reads a number that is not less than the one, nor more than the other."""
    allowed = f"{least} or more" if most == math.inf else f"from {least} to {most}"

    def read(text: str) -> int:
        if not text.strip().isdecimal() or not least <= int(text) <= most:
            raise ValueError(f"has to be {allowed}")
        return int(text)

    return read


positive = whole_number(1)
port = whole_number(1, 65535)
seconds: Callable[[str], float] = parse_seconds
"""Reads a length of time, such as `10m`."""


def default_storage() -> Path:
    """Return the folder of sweeps: $DITK_RAY_STORAGE, else one in the working directory.

    The working directory of a submitted job is removed after it, so there it is one in the
    home directory.
    """
    if chosen := os.environ.get(STORAGE_VARIABLE):
        return Path(chosen).expanduser()
    return Path.home() / _FOLDER if is_submitted_job() else Path(_FOLDER)


def is_submitted_job() -> bool:
    """Say whether this process was started by Ray's job API, which ships its code."""
    return "RAY_JOB_CONFIG_JSON_ENV_VAR" in os.environ


def require_sweep_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        what = "may only contain letters, digits, and . _ + -"
        raise BadConfigError(Problem(f"--name {name}", what))


@dataclass(frozen=True, kw_only=True)
class StorageSettings:
    """Where sweeps are."""

    storage_path: Path = option(
        "where sweeps are kept (default: %(default)s; $DITK_RAY_STORAGE sets another)",
        factory=default_storage,
        metavar="DIR",
    )


@dataclass(frozen=True)
class KubeSettings:
    """The cluster as the user names it. What is None is found as kubectl finds it."""

    kubeconfig: Path | None = option(
        "(default: $KUBECONFIG, ~/.kube/config, or the cluster that this runs in)", metavar="FILE"
    )
    context: str | None = option("kubeconfig context (default: the current one)", metavar="NAME")
    namespace: str | None = option("(default: the context's)", metavar="NAME")

    def as_flags(self) -> str:
        """Return the flags that say the same, to be put behind another command."""
        words = {f"--{name}": value for name, value in vars(self).items() if value}
        return "".join(f" {flag} {shlex.quote(str(value))}" for flag, value in words.items())


@dataclass(frozen=True, kw_only=True)
class RaySettings:
    """Which Ray is used: one that is started on this machine, or a cluster."""

    run_mode: Literal["local", "remote"] | None = option(
        "a Ray of its own on this machine, or a cluster (default: local, "
        "or remote if an address is given or RAY_ADDRESS is set)"
    )
    ray_address: str | None = option("the cluster's address", metavar="HOST:PORT")

    def chosen_mode(self) -> Literal["local", "remote"]:
        """Return which of the two is chosen; raises `BadConfigError` if both are."""
        if self.run_mode == "local" and self.ray_address:
            hint = "leave --run_mode out, or set it to remote"
            raise BadConfigError(Problem("--ray_address", "goes with --run_mode remote", hint))
        if self.run_mode is None:
            is_named = self.ray_address or os.environ.get("RAY_ADDRESS")
            return "remote" if is_named else "local"
        return self.run_mode


DIJOBS = "to run trials as DIJobs on Kubernetes"
SEE = "what to see"
_RECORD = "how to record it in MLflow"
MLflowCheckpoints = Literal["none", "best", "all"]


@dataclass(frozen=True, kw_only=True)
class SweepOptions(StorageSettings, RaySettings):
    """How a sweep runs, independently of its job; saved with the sweep."""

    num_workers_per_node: int | None = option(
        "divide each node among N trials", metavar="N", parse=positive
    )
    name: str | None = option("the sweep's name (default: the class and the time)")
    kube: KubeSettings = options_of(KubeSettings, group=DIJOBS)
    keep_dijobs: Literal["none", "failed", "all"] = option(
        "which ended jobs to leave in the cluster: none, those that failed, or all "
        "(default: none; their logs are kept in any case)",
        "none",
        group=DIJOBS,
    )
    mlflow_uri: str | None = option(
        "a server or a database, or none (default: MLFLOW_TRACKING_URI, else a store of "
        "its own in the storage path, which `ditk-ray ui` shows)",
        group=_RECORD,
        metavar="URI",
    )
    """Chosen by `tune`; what is not chosen is not recorded."""
    mlflow_experiment: str | None = option(
        "the experiment (default: the class)", group=_RECORD, metavar="NAME"
    )
    mlflow_checkpoints: MLflowCheckpoints = option(
        "trials whose best checkpoint is kept (default: best)",
        "best",
        group=_RECORD,
    )
    seed: int | None = option(
        "seed of the sampling and the trials (a searcher object has its own)",
        group="what to change in the JobCfg",
        metavar="N",
    )
    command: tuple[str, ...] = ()
    """How it was started, for the record."""
