"""`ditk-ray gc`: remove what dead sweeps have left in a Kubernetes cluster."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from ditk_ray.cli.cluster_arguments import add_cluster, cluster_settings
from ditk_ray.cli.cluster_delete import add_without_kuberay
from ditk_ray.cli.object_output import (
    add_object_format,
    agrees,
    print_table,
    print_value,
    tell,
)
from ditk_ray.errors import BadConfigError, Problem

if TYPE_CHECKING:
    from ditk_ray.kube.leftovers import Leftover

_EXAMPLES = """\
examples:
  ditk-ray gc                               show what is left over, and ask
  ditk-ray gc --namespace rl --yes          delete it
  ditk-ray gc --format json                 only show it
  ditk-ray gc --clusters                    what is left of Ray clusters instead

A sweep that runs says so in the cluster every minute; one that has not for 10 minutes is
dead. A sweep that was interrupted is dead too: `ditk-ray resume` takes up its jobs only if
they are still there. What `ditk-ray dijob create` made is of no sweep, and stays.

With --clusters it looks for pieces of `ditk-ray cluster launch` and `run` whose RayCluster is gone,
or whose RayJob is over. Claims hold data: they are kept unless --results is given.
"""


def add_command(commands: Any) -> None:
    """Add `gc` to the parser's commands."""
    parser = commands.add_parser(
        "gc",
        help="remove what dead sweeps have left on Kubernetes",
        description="Find the DIJobs of sweeps that live no more, or the pieces of Ray clusters "
        "that are gone, and delete them.",
        epilog=_EXAMPLES,
    )
    parser.set_defaults(run=run)
    parser.add_argument(
        "--clusters", action="store_true", help="what is left of Ray clusters, not of sweeps"
    )
    parser.add_argument(
        "--results", action="store_true", help="with --clusters: also claims, with all their data"
    )
    add_without_kuberay(parser)
    parser.add_argument("--yes", action="store_true", help="do not ask")
    add_cluster(parser)
    add_object_format(parser)


def run(given: argparse.Namespace) -> int:
    """Show what is left over, and delete it if that is wanted."""
    from ditk_ray.cli.gc_clusters import run_clusters

    if given.clusters:
        return run_clusters(given)
    for flag in ("results", "without_kuberay"):
        if getattr(given, flag):
            raise BadConfigError(Problem(f"--{flag}", "goes with --clusters only"))
    return _run_sweeps(given)


def _run_sweeps(given: argparse.Namespace) -> int:
    from ditk_ray.kube.connection import connect
    from ditk_ray.kube.leftovers import delete_leftovers, find_leftovers

    kube = connect(cluster_settings(given))
    found = find_leftovers(kube, datetime.now(UTC))
    is_table = given.format == "table"
    if not is_table:
        print_value([asdict(item) for item in found], given.format)
    elif found:
        _print(found)
    if not found:
        tell(f"nothing is left over in namespace {kube.namespace!r}")
        return 0
    if not is_table and not given.yes:
        return 0
    if not agrees(f"delete these {len(found)} objects?", given.yes):
        return 1
    # A sweep may have been resumed while the question stood.
    still = {item.uid for item in find_leftovers(kube, datetime.now(UTC))}
    chosen = [item for item in found if item.uid in still]
    delete_leftovers(kube, chosen, lambda item: tell(f"{_title(item)} deleted"))
    return 0


def _print(found: list[Leftover]) -> None:
    from ditk_ray.kube.ages import show_age

    headings = ["KIND", "NAME", "SWEEP", "AGE", "PHASE", "WHY"]
    rows = [
        [item.kind, item.name, item.sweep, show_age(item.age), item.phase or "-", item.why]
        for item in found
    ]
    print_table([headings, *rows])


def _title(item: Leftover) -> str:
    return f"{item.kind.lower()}/{item.name}"
