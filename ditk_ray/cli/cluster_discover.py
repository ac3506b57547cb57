"""`ditk-ray cluster discover`: write the clusters of Kubernetes where `submit` finds them."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ditk_ray.cli.cluster_arguments import add_cluster, cluster_settings
from ditk_ray.cli.object_output import add_object_format, print_table, print_value, tell

if TYPE_CHECKING:
    from ditk_ray.cluster.kuberay.discovery import Discovered

_EXAMPLES = """\
examples:
  ditk-ray cluster discover
  ditk-ray cluster discover --namespace rl --output clusters.txt

Writes a line `name: NAME address: http://NAME-head-svc.NAMESPACE.svc:8265` for each cluster that
is ready, and keeps its token in ~/.ray/tokens/NAME. Lines of other clusters stay. These
addresses are known inside Kubernetes only; outside, `ditk-ray cluster forward NAME` writes the
address of its port into the file for as long as it runs.
"""


def add_commands(verbs: Any) -> None:
    """Add `discover`."""
    parser = verbs.add_parser(
        "discover",
        help="write the addresses of ready clusters into ~/.cluster_config",
        description="Find the Ray clusters of a namespace that are ready, and write down their "
        "addresses and tokens for `ditk-ray submit`.",
        epilog=_EXAMPLES,
    )
    parser.set_defaults(run=run)
    add_discover_arguments(parser)


def add_discover_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what the command takes."""
    parser.add_argument("--output", metavar="FILE", type=Path, help="(default: ~/.cluster_config)")
    add_cluster(parser)
    add_object_format(parser)


def run(given: argparse.Namespace) -> int:
    """Write the clusters down, and print them; 1 if none is ready."""
    from ditk_ray.cluster.jobs.cluster_file import default_cluster_file
    from ditk_ray.cluster.kuberay.discovery import is_inside, write_down
    from ditk_ray.cluster.kuberay.found_clusters import find_all
    from ditk_ray.kube.connection import connect

    kube = connect(cluster_settings(given))
    clusters = find_all(kube, datetime.now(UTC)).clusters
    path = given.output or default_cluster_file()
    found = write_down(kube, clusters, path)
    _print(found, given.format)
    for each in clusters:
        if not each.is_ready:
            tell(f"{each.name} is left out: {each.why}")
    for item in found:
        if item.token_note:
            tell(f"the token of {item.name} was not kept: {item.token_note}")
    if not found:
        tell(f"no Ray cluster in namespace {kube.namespace!r} is ready")
        return 1
    tell(f"written to {path}")
    if not is_inside():
        tell("outside Kubernetes, reach them with `ditk-ray cluster forward NAME`")
    return 0


def _print(found: list[Discovered], form: str) -> None:
    if form != "table":
        print_value([asdict(each) for each in found], form)
    elif found:
        rows = [[each.name, each.address, each.mlflow_uri or "-"] for each in found]
        print_table([["NAME", "ADDRESS", "MLFLOW"], *rows])
