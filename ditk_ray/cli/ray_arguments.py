"""The arguments by which commands choose between a Ray of their own and a cluster."""

from __future__ import annotations

import argparse
import contextlib
import os
from typing import Any, Literal

from ditk_ray.errors import BadConfigError, Problem


def add_ray(parser: Any) -> None:
    """Add the arguments that say where Ray is."""
    parser.add_argument(
        "--run_mode",
        choices=["local", "remote"],
        help="a Ray of its own on this machine, or a cluster (default: local, "
        "or remote if an address is given or RAY_ADDRESS is set)",
    )
    parser.add_argument("--ray_address", metavar="HOST:PORT", help="the cluster's address")


def chosen_run_mode(given: argparse.Namespace) -> Literal["local", "remote"]:
    """Return which of the two the arguments choose; raises `BadConfigError` if both."""
    if given.run_mode == "local" and given.ray_address:
        hint = "leave --run_mode out, or say remote"
        raise BadConfigError(Problem("--ray_address", "goes with --run_mode remote", hint))
    if given.run_mode is None:
        is_named = given.ray_address or os.environ.get("RAY_ADDRESS")
        return "remote" if is_named else "local"
    return "remote" if given.run_mode == "remote" else "local"


def chosen_ray(given: argparse.Namespace) -> contextlib.AbstractContextManager[None]:
    """Return the connection to the Ray that the arguments choose; nothing is started yet."""
    from ditk_ray.cluster.ray_session import local_ray, remote_ray

    is_local = chosen_run_mode(given) == "local"
    return local_ray() if is_local else remote_ray(given.ray_address)
