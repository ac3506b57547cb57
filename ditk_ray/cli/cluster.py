"""`ditk-ray cluster`: Ray clusters on Kubernetes, made by KubeRay."""

from __future__ import annotations

from typing import Any

from ditk_ray.cli import (
    cluster_check,
    cluster_delete,
    cluster_discover,
    cluster_forward,
    cluster_launch,
    cluster_list,
    cluster_run,
    cluster_status,
)

_EXAMPLES = """\
examples:
  ditk-ray cluster launch --name rl --image IMAGE --workers 2 --cpu 4 --dry_run
  ditk-ray cluster launch --name rl --image IMAGE --cloud gke --accelerator nvidia-l4 --gpu 1
  ditk-ray cluster run --name night --image IMAGE -- tune --cfg_class CartpoleDQNJobCfg
  ditk-ray cluster list
  ditk-ray cluster status rl --wait 10m
  ditk-ray cluster forward rl
  ditk-ray cluster delete rl

`ditk-ray cluster COMMAND --help` tells more about each.
"""


def add_command(commands: Any) -> None:
    """Add `cluster` to the parser's commands."""
    parser = commands.add_parser(
        "cluster",
        help="make, look at and delete Ray clusters on Kubernetes",
        description="Look after Ray clusters that KubeRay runs on Kubernetes.",
        epilog=_EXAMPLES,
    )
    verbs = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for module in (
        cluster_check,
        cluster_launch,
        cluster_run,
        cluster_list,
        cluster_status,
        cluster_discover,
        cluster_forward,
        cluster_delete,
    ):
        module.add_commands(verbs)
