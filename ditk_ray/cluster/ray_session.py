"""Connecting to Ray: one of our own on this machine, or a cluster."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ditk_ray.cluster.nodes import usable_cpus
from ditk_ray.config.storage import is_submitted_job
from ditk_ray.errors import BadConfigError, ClusterUnreachableError, Problem

ANSWER_SECONDS = 5.0
_OBJECT_STORE_BYTES = 200 * 1024 * 1024

_SETTINGS = {
    # Tune's own loggers cost more than the rest of its event loop together, and
    # each trial's metrics are written by its actor.
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    # The sweep checks for its metric itself and says so in one line.
    "TUNE_DISABLE_STRICT_METRIC_CHECKING": "1",
    "TUNE_PRINT_ALL_TRIAL_ERRORS": "0",
    "TUNE_WARN_EXCESSIVE_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S": "0",
    "TUNE_FORCE_TRIAL_CLEANUP_S": "5",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_TRAIN_ENABLE_V2_MIGRATION_WARNINGS": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_AIR_NEW_OUTPUT": "0",  # it prints even when told not to, and ignores reporters
}


def quiet_ray() -> None:
    """Choose Ray's settings by its environment variables; a user's own win.

    Has to come before `ray` is imported.
    """
    for name, value in _SETTINGS.items():
        os.environ.setdefault(name, value)
    # What it has to say of failed trials, the summary says with their logs.
    for name in ("ray.tune", "ray.air"):
        logging.getLogger(name).setLevel(logging.CRITICAL)


@contextlib.contextmanager
def local_ray() -> Iterator[None]:
    """Run a Ray of our own on this machine for a while."""
    import ray

    ray.init(
        address="local",
        num_cpus=usable_cpus(),
        include_dashboard=False,
        log_to_driver=False,
        logging_level="ERROR",
        object_store_memory=_OBJECT_STORE_BYTES,
    )
    try:
        yield
    finally:
        ray.shutdown()


@contextlib.contextmanager
def remote_ray(address: str | None) -> Iterator[None]:
    """Be connected to a cluster for a while; raises `ClusterUnreachableError`."""
    import ray

    address = address or os.environ.get("RAY_ADDRESS") or "auto"
    if address.startswith("ray://"):
        raise BadConfigError(Problem(f"--ray_address {address}", "is Ray Client's", _CLIENT_HINT))
    _require_answer(address)
    options: dict[str, Any] = {}
    if not is_submitted_job():  # a submitted job ships its own code
        package = Path(__file__).resolve().parents[1]
        options["runtime_env"] = {"py_modules": [str(package)]}
    try:
        ray.init(address=address, log_to_driver=False, logging_level="ERROR", **options)
    except (ConnectionError, RuntimeError, ValueError) as error:
        first = str(error).strip().partition("\n")[0]
        hint = _HINT if address == "auto" else _TOKEN_HINT
        raise ClusterUnreachableError(f"no Ray cluster at {address}: {first}\n{hint}") from error
    try:
        yield
    finally:
        ray.shutdown()


_CLIENT_HINT = (
    "a sweep's driver has to be on the cluster's network: give the head's own address "
    "(HOST:6379), or submit the command with `ray job submit`"
)
_TOKEN_HINT = (
    "something answers there: is it Ray, of this version, and does it want a token? "
    "Then set RAY_AUTH_MODE=token, and RAY_AUTH_TOKEN or ~/.ray/auth_token"
)
_HINT = "start one with `ray start --head`, or give its address with --ray_address HOST:PORT"


def _require_answer(address: str) -> None:
    """Fail within seconds where Ray itself would try for minutes."""
    host, _, port = address.rpartition("://")[2].rpartition(":")
    if not (host and port.isdecimal()):
        return
    try:
        socket.create_connection((host, int(port)), timeout=ANSWER_SECONDS).close()
    except OSError as error:
        raise ClusterUnreachableError(f"nothing answers at {address}: {error}\n{_HINT}") from error


def require_shared_folder(folder: Path) -> None:
    """Raise `BadConfigError` if a node of the cluster does not see the folder.

    Only nodes that are there can be asked: one that comes later is taken to be like them.
    """
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    token = folder / f".seen_{uuid.uuid4().hex}"
    token.touch()

    @ray.remote(num_cpus=0)
    def sees(path: str) -> bool:
        return Path(path).exists()

    try:
        nodes = [node for node in ray.nodes() if node["Alive"]]
        answers = [
            sees.options(
                scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
            ).remote(str(token))
            for node in nodes
        ]
        seen = ray.get(answers, timeout=120)
    except ray.exceptions.GetTimeoutError as error:
        what = "not every node of the cluster answers"
        raise ClusterUnreachableError(f"{what} within two minutes") from error
    finally:
        token.unlink()
    blind = [node["NodeManagerHostname"] for node, ok in zip(nodes, seen, strict=True) if not ok]
    if blind:
        raise BadConfigError(
            Problem(
                f"--storage_path {folder.parent}",
                f"is not seen by {', '.join(blind)}",
                "trials write their results there: give a folder that all nodes share",
            )
        )
