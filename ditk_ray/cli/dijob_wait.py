"""`ditk-ray dijob wait`: wait for what becomes of a job."""

from __future__ import annotations

import argparse
from typing import Any

from ditk_ray.cli.arguments import seconds
from ditk_ray.cli.cluster_arguments import add_cluster, cluster_settings
from ditk_ray.cli.object_output import tell
from ditk_ray.errors import DitkRayError

_EXAMPLES = """\
examples:
  ditk-ray dijob wait my-job                        until it has succeeded
  ditk-ray dijob wait my-job --for running --timeout 5m
  ditk-ray dijob delete my-job && ditk-ray dijob wait my-job --for deleted

Exit code: 0 when it came to that, 1 when it did not, or cannot any more. Phases, and what
keeps the job from starting, are told on the standard error.
"""
_GOALS = ("succeeded", "finished", "running", "deleted")


def add_commands(verbs: Any) -> None:
    """Add `wait`."""
    parser = verbs.add_parser(
        "wait",
        help="wait until a job has succeeded, or another thing",
        description="Wait for what becomes of a DIJob, and say why if it does not.",
        epilog=_EXAMPLES,
    )
    parser.set_defaults(run=run)
    parser.add_argument("name", metavar="NAME", help="of the DIJob")
    parser.add_argument(
        "--for",
        dest="goal",
        choices=_GOALS,
        default=_GOALS[0],
        help="what to wait for; finished is succeeded or failed (default: %(default)s)",
    )
    parser.add_argument(
        "--timeout", metavar="TIME", type=seconds, default=600.0, help="(default: 10m)"
    )
    add_cluster(parser)


def run(given: argparse.Namespace) -> int:
    """Wait, and print how it ended."""
    from ditk_ray.kube.connection import connect
    from ditk_ray.kube.job_waiting import Goal, wait_for_job

    kube = connect(cluster_settings(given))
    waited = wait_for_job(kube, given.name, Goal(given.goal), given.timeout, tell)
    if not waited.is_reached:
        raise DitkRayError(f"dijob/{given.name} {waited.text}")
    print(f"dijob/{given.name} {waited.text}")
    return 0
