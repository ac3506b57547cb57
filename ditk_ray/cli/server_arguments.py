"""The arguments of the commands that run a web server."""

from __future__ import annotations

import argparse


def add_server_arguments(parser: argparse.ArgumentParser, port: int) -> None:
    """Let a command take where its server listens and what is shown of it."""
    parser.add_argument(
        "--host",
        default="127.0.0.1",
        help="where to listen (default: %(default)s, for this machine alone; "
        "0.0.0.0 is for everybody who reaches it)",
    )
    parser.add_argument(
        "--port", type=_port, help=f"(default: {port}, or the next one that is free)"
    )
    parser.add_argument("--open", action="store_true", help="open it in a browser")
    parser.add_argument("--verbose", action="store_true", help="show the server's own log")


def _port(text: str) -> int:
    number = int(text)
    if not 1 <= number <= 65535:
        raise argparse.ArgumentTypeError("has to be from 1 to 65535")
    return number
