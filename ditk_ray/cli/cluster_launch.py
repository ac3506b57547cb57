"""`ditk-ray cluster launch`: make Ray clusters on Kubernetes."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ditk_ray.cli.arguments import seconds
from ditk_ray.cli.cluster_arguments import cluster_settings, shown_cluster
from ditk_ray.cli.launch_arguments import GROUP_RULE, add_launch, launch_request
from ditk_ray.cli.object_output import tell

if TYPE_CHECKING:
    from ditk_ray.cluster.kuberay.launch_options import LaunchOptions
    from ditk_ray.kube.connection import Kube
    from ditk_ray.kube.objects import Manifest

_EXAMPLES = f"""\
examples:
  ditk-ray cluster launch --name rl --image IMAGE --max_workers 8 --dry_run
  ditk-ray cluster launch --name rl --image IMAGE --cloud gke --workers 8 --accelerator nvidia-l4 \\
      --gpu 1 --cpu 8 --memory 32G --spot
  ditk-ray cluster launch --name rl --image IMAGE --cpu 8 --group cpu --max_workers 20 \\
      --group gpu --gpu 1 --max_workers 2
  ditk-ray cluster launch --name rl --image IMAGE --num_clusters 2    rl-0 and rl-1

{GROUP_RULE}
With a cluster come its MLflow server, a claim for results, an account, and a network policy by
which only its own pods and the KubeRay operator reach it. Nothing is reachable from outside.
Sending the same again changes nothing; with other options the cluster is changed.
"""


def add_commands(verbs: Any) -> None:
    """Add `launch`."""
    parser = verbs.add_parser(
        "launch",
        help="make a cluster, or several",
        description="Make a Ray cluster, which KubeRay runs.",
        epilog=_EXAMPLES,
    )
    parser.set_defaults(run=run)
    add_launch(parser)
    parser.add_argument(
        "--num_clusters", metavar="N", type=int, default=1, help="make NAME-0 to NAME-(N-1)"
    )
    parser.add_argument(
        "--wait", metavar="TIME", type=seconds, help="wait for it to be ready, such as 10m"
    )


def run(given: argparse.Namespace) -> int:
    """Make the clusters, and print what became of each object."""
    from ditk_ray.cluster.kuberay.launch_check import check_launch
    from ditk_ray.cluster.kuberay.surroundings import launch_manifests
    from ditk_ray.kube.connection import connect

    clusters = check_launch(launch_request(given, num_clusters=given.num_clusters))
    made = {options.name: launch_manifests(options) for options in clusters}
    manifests = [manifest for each in made.values() for manifest in each]
    if given.dry_run:
        print_manifests(manifests)
        return 0
    kube = connect(cluster_settings(given))
    send(kube, manifests)
    for cluster, each in made.items():
        tell_costs(cluster, each)
    _tell_stale(kube, clusters, manifests)
    name, where = clusters[0].name, shown_cluster(given)
    tell(f"to go on:\n  ditk-ray cluster status {name}{where}")
    tell(f"  ditk-ray cluster forward {name}{where}")
    tell(f"  ditk-ray submit --cluster {name} -- tune --cfg_class CartpoleDQNJobCfg")
    names = " ".join(options.name for options in clusters)
    tell(f"when you are done:\n  ditk-ray cluster delete {names}{where}")
    return _wait(kube, clusters, given.wait) if given.wait is not None else 0


def print_manifests(manifests: Iterable[Manifest]) -> None:
    """Print objects as one stream of YAML, which kubectl takes."""
    from ditk_ray.kube.yaml_text import yaml_documents

    print(yaml_documents(manifests), end="")


def send(kube: Kube, manifests: list[Manifest]) -> None:
    """Have the objects be as they are given, and print a line for each."""
    from ditk_ray.cluster.kuberay.launching import launch

    launch(kube, manifests, lambda applied: print(applied, flush=True))


def tell_costs(name: str, manifests: Iterable[Manifest]) -> None:
    """Say what somebody pays for from now on."""
    from ditk_ray.cluster.kuberay.standing_costs import launch_costs

    tell(f"while {name!r} stands, it costs money for")
    for line in launch_costs(manifests):
        tell(f"  {line}")


def _tell_stale(kube: Kube, clusters: Iterable[LaunchOptions], sent: list[Manifest]) -> None:
    """Name what earlier options made and these do not: it stands, and costs, as before."""
    from ditk_ray.cluster.kuberay.cluster_pieces import find_pieces

    known = {(manifest["kind"], manifest["metadata"]["name"]) for manifest in sent}
    pieces = [piece for options in clusters for piece in find_pieces(kube, options.name)]
    stale = [piece.title for piece in pieces if (piece.resource.kind, piece.name) not in known]
    if stale:
        tell(f"not part of it any more, and still there: {', '.join(stale)}")


def _wait(kube: Kube, clusters: Iterable[LaunchOptions], limit: float) -> int:
    from ditk_ray.cluster.kuberay.cluster_waiting import wait_for_cluster

    code = 0
    for options in clusters:
        health = wait_for_cluster(kube, options.name, limit, tell)
        if health.is_ready:
            print(f"raycluster/{options.name} ready", flush=True)
        else:
            tell(f"error: {options.name} is not ready: {health.why}")
            code = 1
    return code
