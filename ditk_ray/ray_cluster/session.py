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

from ditk_ray.config.options import RaySettings, is_submitted_job
from ditk_ray.errors import BadConfigError, ClusterUnreachableError, Problem, first_line
from ditk_ray.ray_cluster.nodes import cluster_nodes, usable_cpus

_SETTINGS = {
    # Tune's own loggers cost more than the rest of its event loop together.
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    # The sweep checks for its metric itself and says so in one line.
    "TUNE_DISABLE_STRICT_METRIC_CHECKING": "1",
    "TUNE_PRINT_ALL_TRIAL_ERRORS": "0",
    "TUNE_WARN_EXCESSIVE_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S": "0",
    "TUNE_FORCE_TRIAL_CLEANUP_S": "5",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_TRAIN_ENABLE_V2_MIGRATION_WARNINGS": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_AIR_NEW_OUTPUT": "0",  # it prints even if it should not, and ignores reporters
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


def chosen_ray(settings: RaySettings) -> contextlib.AbstractContextManager[None]:
    """Return the connection to the Ray that the settings choose; nothing is started yet."""
    is_local = settings.chosen_mode() == "local"
    return local_ray() if is_local else remote_ray(settings.ray_address)


@contextlib.contextmanager
def local_ray() -> Iterator[None]:
    """Run a Ray of our own on this machine for a while."""
    import ray  # slow to import

    ray.init(
        address="local",
        num_cpus=usable_cpus(),
        include_dashboard=False,
        log_to_driver=False,
        logging_level="ERROR",
        object_store_memory=200 * 1024 * 1024,
    )
    try:
        yield
    finally:
        ray.shutdown()


@contextlib.contextmanager
def remote_ray(address: str | None) -> Iterator[None]:
    """Be connected to a cluster for a while; raises `ClusterUnreachableError`."""
    import ray  # slow to import

    address = address or os.environ.get("RAY_ADDRESS") or "auto"
    if address.startswith("ray://"):
        hint = "give the head's own address (HOST:6379), or use `ditk-ray submit`"
        raise BadConfigError(Problem(f"--ray_address {address}", "is Ray Client's", hint))
    host, _, port = address.rpartition("://")[2].rpartition(":")
    hint = "start one with `ray start --head`, or give its address with --ray_address HOST:PORT"
    options: dict[str, Any] = {}
    if not is_submitted_job():  # a submitted job ships its own code
        options["runtime_env"] = {"py_modules": [str(Path(__file__).resolve().parents[1])]}
    try:
        if host and port.isdecimal():  # within seconds, where Ray itself would try for minutes
            socket.create_connection((host, int(port)), timeout=5.0).close()
            hint = (
                "is it Ray, of this version? If it requires a token, set RAY_AUTH_MODE=token, and "
            )
            hint += "RAY_AUTH_TOKEN or ~/.ray/auth_token"
        ray.init(address=address, log_to_driver=False, logging_level="ERROR", **options)
    except (OSError, RuntimeError, ValueError) as error:
        what = f"no Ray cluster at {address}: {first_line(error)}"
        raise ClusterUnreachableError(f"{what}\n{hint}") from error
    try:
        yield
    finally:
        ray.shutdown()


def require_shared_folder(folder: Path) -> None:
    """Raise `BadConfigError` if a node of the cluster does not see the folder.

    Only nodes that are there can be asked: one that comes later is taken to be like them.
    """
    import ray  # slow to import
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    @ray.remote(num_cpus=0)
    def sees(path: str) -> bool:
        return Path(path).exists()

    nodes = cluster_nodes()
    there = [NodeAffinitySchedulingStrategy(node.id, soft=False) for node in nodes]
    token = folder / f".seen_{uuid.uuid4().hex}"
    token.touch()
    try:
        answers = [sees.options(scheduling_strategy=one).remote(str(token)) for one in there]
        seen = ray.get(answers, timeout=120)
    except ray.exceptions.GetTimeoutError as error:
        what = "not every node of the cluster answers within two minutes"
        raise ClusterUnreachableError(what) from error
    finally:
        token.unlink()
    if blind := [node.name for node, ok in zip(nodes, seen, strict=True) if not ok]:
        where, what = f"--storage_path {folder.parent}", f"is not seen by {', '.join(blind)}"
        hint = "trials write their results there: give a folder that all nodes share"
        raise BadConfigError(Problem(where, what, hint))
