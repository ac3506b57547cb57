"""The arguments that all commands about a recorded sweep share."""

from __future__ import annotations

import argparse
from pathlib import Path

from ditk_ray.config.storage import default_storage


def add_sweep(parser: argparse.ArgumentParser, is_optional: bool = False, more: str = "") -> None:
    """Let a command take a sweep, and the folder that sweeps are kept in."""
    parser.add_argument(
        "sweep",
        metavar="SWEEP",
        nargs="?" if is_optional else None,
        help=f"a sweep's name or folder{more}",
    )
    parser.add_argument(
        "--storage_path",
        metavar="DIR",
        type=Path,
        default=default_storage(),
        help="where sweeps are kept (default: %(default)s)",
    )


def add_format(parser: argparse.ArgumentParser) -> None:
    """Let a command print for people or for programs."""
    parser.add_argument(
        "--format", choices=["table", "json"], default="table", help="of what is printed"
    )


def positive(text: str) -> int:
    """Read a number of 1 or more."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("has to be 1 or more")
    return number
