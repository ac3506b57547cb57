"""`ditk-ray`: the entry point of the command line."""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Callable, Sequence

import ditk_ray
from ditk_ray.cli.flags import Parser, add_commands
from ditk_ray.errors import DitkRayError

COMMANDS = {
    "tune": (".tune:Tune", "run a sweep"),
    "status": (".status:Status", "show the progress of a sweep, or list all sweeps"),
    "best": (".status:Best", "show a sweep's best trial"),
    "logs": (".logs:Logs", "show a trial's log"),
    "report": (".browser:Report", "write a sweep's report.html"),
    "replay": (".replay:ReplayTrial", "run a trial again and compare its score"),
    "ui": (".browser:Ui", "show sweeps in MLflow's UI"),
    "tensorboard": (".browser:Tensorboard", "show a sweep's trials in TensorBoard"),
    "sync": (".mlflow:Sync", "send a sweep's records to MLflow"),
    "mlflow-to-tensorboard": (".mlflow:Export", "write an MLflow experiment as event files"),
    "dijob": (".dijob:FAMILY", "create, inspect, change and delete DIJobs on Kubernetes"),
    "submit": (".submit:Submit", "run commands as jobs on one or several Ray clusters"),
    "wrap": (".wrap:Wrap", "run single commands on a cluster, each with its own resources"),
    "cluster": (".cluster:FAMILY", "create, inspect and delete Ray clusters on Kubernetes"),
    "gc": (".gc:Gc", "remove what dead sweeps have left on Kubernetes"),
    "resume": (".resume:Resume", "resume a sweep that was interrupted or killed"),
    "extend": (".resume:Extend", "add trials to a sweep that has ended"),
    "pause": (".requests:Pause", "pause a trial of a running sweep"),
    "continue": (".requests:Continue", "resume a paused trial"),
    "cancel": (".requests:Cancel", "end a trial of a running sweep, or stop the whole sweep"),
    "priority": (".requests:Priority", "set the priority of a trial of a running sweep"),
}
"""Every command: `.module:NAME` of its `Command` or `Family`, and a line for the help."""


def build_parser() -> Parser:
    """Return the parser of all commands; each command is loaded when it is chosen."""
    parser = Parser(prog="ditk-ray", description="Tune DI-engine experiments with Ray Tune.")
    parser.add_argument("--version", action="version", version=f"ditk-ray {ditk_ray.__version__}")
    add_commands(parser, COMMANDS)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    given = build_parser().parse_args(sys.argv[1:] if arguments is None else arguments)
    return run_command(given.run, given)


def run_command(run: Callable[[argparse.Namespace], int], given: argparse.Namespace) -> int:
    """Run a command with its arguments, and print errors that are meant for a person."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # for terminals that cannot show a character
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
        # The reader has enough; Python would try to write the rest once more at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    return code


if __name__ == "__main__":
    sys.exit(main())
