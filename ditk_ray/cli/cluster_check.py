"""`ditk-ray cluster check`: what a Ray cluster needs, before one is launched."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from ditk_ray.cli.cluster_arguments import add_cluster, cluster_settings
from ditk_ray.cli.object_output import add_object_format, print_table, print_value

if TYPE_CHECKING:
    from ditk_ray.cluster.kuberay.cluster_check import Finding

_EXAMPLES = """\
examples:
  ditk-ray cluster check
  ditk-ray cluster check --namespace rl --queue research

Changes nothing. Exit code: 0 if nothing is missing, else 1. What is unknown may not be looked at
by this account, or shows only when a cluster is launched.
"""


def add_commands(verbs: Any) -> None:
    """Add `check`."""
    parser = verbs.add_parser(
        "check",
        help="say what is missing for Ray clusters on this Kubernetes",
        description="Look whether KubeRay is there and this account has the rights that it "
        "needs, and what there is of storage and GPUs.",
        epilog=_EXAMPLES,
    )
    parser.set_defaults(run=run)
    parser.add_argument("--queue", metavar="NAME", help="look for Kueue and this queue, too")
    add_cluster(parser)
    add_object_format(parser)


def run(given: argparse.Namespace) -> int:
    """Print what was found."""
    from ditk_ray.cluster.kuberay.cluster_check import Verdict, check_cluster
    from ditk_ray.kube.connection import connect

    found = list(check_cluster(connect(cluster_settings(given)), given.queue))
    if given.format == "table":
        _print(found)
    else:
        print_value([asdict(each) for each in found], given.format)
    return 1 if any(each.verdict is Verdict.MISSING for each in found) else 0


def _print(found: list[Finding]) -> None:
    print_table([[each.about, each.verdict, each.text] for each in found])
    hints = [each for each in found if each.hint]
    if hints:
        print()
    for each in hints:
        print(f"{each.about}: {each.hint}")
