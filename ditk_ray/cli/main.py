"""`ditk-ray`: the entry point of the command line."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import ditk_ray
from ditk_ray.cli import (
    best,
    logs,
    mlflow_to_tensorboard,
    replay,
    report,
    status,
    sync,
    tensorboard,
    tune,
    ui,
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
)


def build_parser() -> Parser:
    """Return the parser of all commands; loads nothing heavy."""
    parser = Parser(prog="ditk-ray", description="Tune DI-engine experiments with Ray Tune.")
    parser.add_argument("--version", action="version", version=f"ditk-ray {ditk_ray.__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in _COMMANDS:
        command.add_command(commands)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    given = build_parser().parse_args(sys.argv[1:] if arguments is None else arguments)
    try:
        code: int = given.run(given)
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
