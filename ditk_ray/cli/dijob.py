"""`ditk-ray dijob`: look after single DIJobs, without kubectl."""

from __future__ import annotations

from typing import Any

from ditk_ray.cli import (
    dijob_change,
    dijob_create,
    dijob_delete,
    dijob_describe,
    dijob_get,
    dijob_logs,
    dijob_wait,
)

_EXAMPLES = """\
examples:
  ditk-ray dijob create -f job.yaml --config cartpole_dqn_config.py
  ditk-ray dijob get
  ditk-ray dijob describe my-job
  ditk-ray dijob logs my-job --follow
  ditk-ray dijob wait my-job --timeout 2h
  ditk-ray dijob delete my-job

`ditk-ray dijob COMMAND --help` tells more about each.
"""


def add_command(commands: Any) -> None:
    """Add `dijob` to the parser's commands."""
    parser = commands.add_parser(
        "dijob",
        help="create, look at, change and delete DIJobs on Kubernetes",
        description="Look after single DIJobs, those of sweeps among them.",
        epilog=_EXAMPLES,
    )
    verbs = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for module in (
        dijob_create,
        dijob_get,
        dijob_describe,
        dijob_logs,
        dijob_change,
        dijob_delete,
        dijob_wait,
    ):
        module.add_commands(verbs)
