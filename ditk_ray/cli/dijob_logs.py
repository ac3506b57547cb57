"""`ditk-ray dijob logs`: what the pods of a job print."""

from __future__ import annotations

import argparse
import contextlib
import io
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ditk_ray.cli.cluster_arguments import add_cluster, cluster_settings
from ditk_ray.cli.object_output import tell
from ditk_ray.cli.sweep_arguments import positive

if TYPE_CHECKING:
    from ditk_ray.kube.connection import Kube
    from ditk_ray.kube.job_logs import LogLine

_EXAMPLES = """\
examples:
  ditk-ray dijob logs my-job
  ditk-ray dijob logs my-job --follow               until the job ends
  ditk-ray dijob logs my-job --task learner --tail 100

The log is that of the container `di-container`, or else of the first. With several pods each
line begins with its pod. A pod's log goes with the pod: a finished job has what its
cleanPodPolicy leaves.
"""


def add_commands(verbs: Any) -> None:
    """Add `logs`."""
    parser = verbs.add_parser(
        "logs",
        help="print the logs of a job's pods",
        description="Print the logs of a DIJob's pods, also while they grow.",
        epilog=_EXAMPLES,
    )
    parser.set_defaults(run=run)
    parser.add_argument("name", metavar="NAME", help="of the DIJob")
    parser.add_argument("--task", metavar="TASK", help="only pods of this task (default: all)")
    parser.add_argument("--follow", action="store_true", help="go on until the job ends")
    parser.add_argument("--tail", metavar="N", type=positive, help="only the last N lines of each")
    add_cluster(parser)


def run(given: argparse.Namespace) -> int:
    """Print the logs."""
    from ditk_ray.kube.connection import connect

    # A terminal that cannot show a character must not end the command.
    with contextlib.suppress(AttributeError, io.UnsupportedOperation):
        sys.stdout.reconfigure(errors="replace")  # type: ignore[union-attr]
    kube = connect(cluster_settings(given))
    if given.follow:
        _follow(kube, given)
    else:
        _print_so_far(kube, given)
    return 0


def _print_so_far(kube: Kube, given: argparse.Namespace) -> None:
    from ditk_ray.kube.job_logs import check_task, has_several_pods, printed_lines

    job = kube.dijobs.get(given.name)
    check_task(job, given.task)
    lines = printed_lines(kube, job, given.task, given.tail, tell)
    _print(lines, has_several_pods(job, given.task))


def _follow(kube: Kube, given: argparse.Namespace) -> None:
    from ditk_ray.kube.job_logs import LogFollower, check_task, has_several_pods
    from ditk_ray.kube.live_job import LiveJob

    with LiveJob(kube, given.name) as live:
        check_task(live.job, given.task)
        follower = LogFollower(live, kube, given.tail, tell)
        _print(follower.lines(given.task), has_several_pods(live.job, given.task))


def _print(lines: Iterable[LogLine], is_prefixed: bool) -> None:
    for line in lines:
        prefix = f"[{line.pod}] " if is_prefixed else ""
        print(f"{prefix}{line.text}", flush=True)
