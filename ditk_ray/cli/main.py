"""`ditk-ray`: the entry point of the command line."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence

import ditk_ray
from ditk_ray.cli import (
    best,
    cluster,
    dijob,
    gc,
    logs,
    mlflow_to_tensorboard,
    replay,
    report,
    requests,
    resume,
    status,
    submit,
    sync,
    tensorboard,
    tune,
    ui,
    wrap,
)
from ditk_ray.cli.arguments import Parser
from ditk_ray.errors import DitkRayError

_COMMANDS = (
    tune,
    status,
    best,
    logs,
    report,
    replay,
    ui,
    tensorboard,
    sync,
    mlflow_to_tensorboard,
    dijob,
    submit,
    wrap,
    cluster,
    gc,
)


def build_parser() -> Parser:
    """Return the parser of all commands; loads nothing heavy."""
    parser = Parser(prog="ditk-ray", description="Tune DI-engine experiments with Ray Tune.")
    parser.add_argument("--version", action="version", version=f"ditk-ray {ditk_ray.__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in _COMMANDS:
        command.add_command(commands)
    for family in (resume, requests):
        family.add_commands(commands)
    return parser


def command_names() -> frozenset[str]:
    """Return the names of all commands."""
    parsers = [action.choices for action in build_parser()._actions if action.choices]
    return frozenset(name for choices in parsers for name in choices)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    given = build_parser().parse_args(sys.argv[1:] if arguments is None else arguments)
    return run_command(given.run, given)


def run_command(run: Callable[[argparse.Namespace], int], given: argparse.Namespace) -> int:
    """Run a command with its arguments, and tell of errors that are meant for a person."""
    try:
        code = run(given)
        sys.stdout.flush()
    except DitkRayError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # Whoever read has enough; Python would try to write the rest once more at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    return code


if __name__ == "__main__":
    sys.exit(main())
