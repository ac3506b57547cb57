"""`ditk-ray cluster delete`: remove Ray clusters with all that was made for them."""

from __future__ import annotations

import argparse
from collections.abc import Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from ditk_ray.cli.arguments import seconds
from ditk_ray.cli.cluster_arguments import add_cluster, cluster_settings
from ditk_ray.cli.object_output import agrees, print_table, tell
from ditk_ray.errors import BadConfigError, Problem

if TYPE_CHECKING:
    from ditk_ray.cluster.kuberay.cluster_pieces import Piece
    from ditk_ray.kube.connection import Kube

_EXAMPLES = """\
examples:
  ditk-ray cluster delete rl                     after a question; results are kept
  ditk-ray cluster delete rl --results --yes     with all results and records
  ditk-ray cluster delete --all                  all clusters and jobs of ditk-ray in the namespace

What `cluster launch` and `cluster run` made is removed, by its labels, and nothing else. The claims
with the results and MLflow's records are kept unless --results is given: they go on costing what
their storage costs, and a cluster of the same name finds them again. Lines of ~/.cluster_config
that lead to what is deleted are taken out, with the tokens of ~/.ray/tokens.
"""


def add_commands(verbs: Any) -> None:
    """Add `delete`."""
    parser = verbs.add_parser(
        "delete",
        help="delete clusters and jobs",
        description="Delete Ray clusters and RayJobs with all that was made for them.",
        epilog=_EXAMPLES,
    )
    parser.set_defaults(run=run)
    parser.add_argument("names", metavar="NAME", nargs="*", help="of clusters or jobs")
    parser.add_argument("--all", action="store_true", help="all that ditk-ray made")
    parser.add_argument(
        "--results", action="store_true", help="also the claims, with all results and records"
    )
    add_without_kuberay(parser)
    parser.add_argument("--yes", action="store_true", help="do not ask")
    parser.add_argument(
        "--wait", metavar="TIME", type=seconds, help="wait until all is gone, such as 5m"
    )
    add_cluster(parser)


def add_without_kuberay(parser: argparse.ArgumentParser) -> None:
    """Let a command go on where KubeRay was uninstalled."""
    parser.add_argument(
        "--without_kuberay",
        action="store_true",
        help="KubeRay was uninstalled: where its kinds are unknown, no cluster stands any more",
    )


def run(given: argparse.Namespace) -> int:
    """Delete what the arguments choose, and print the names."""
    from ditk_ray.cluster.kuberay.cluster_pieces import delete_pieces
    from ditk_ray.kube.connection import connect

    if bool(given.names) == given.all:
        raise BadConfigError(Problem("delete", "say which clusters: NAME, or --all"))
    kube = connect(cluster_settings(given))
    found = _chosen(kube, given)
    kept = [piece for piece in found if piece.is_data and not given.results]
    pieces = [piece for piece in found if piece not in kept]
    if not pieces:
        tell(f"nothing is to be deleted in namespace {kube.namespace!r}")
        tell_kept(kept)
        return 0
    if not given.yes:
        print_table([["CLUSTER", "OBJECT"], *([piece.cluster, piece.title] for piece in pieces)])
    if not agrees(f"delete these {len(pieces)} objects?", given.yes):
        return 1
    delete_pieces(kube, pieces, lambda piece: print(f"{piece.title} deleted", flush=True))
    _forget(kube, {piece.cluster for piece in pieces})
    tell_kept(kept)
    return _wait(kube, pieces, given) if given.wait is not None else 0


def tell_kept(kept: Sequence[Piece]) -> None:
    """Say which data is kept, and that somebody pays for it."""
    if kept:
        claims = ", ".join(f"{piece.name} ({piece.size})" for piece in kept)
        tell(f"kept, with their data: {claims}\n  this storage costs money; --results deletes it")


def _forget(kube: Kube, names: Collection[str]) -> None:
    """Take the clusters out of what `submit` knows: jobs sent to them would find nobody."""
    from ditk_ray.cluster.jobs.cluster_file import default_cluster_file
    from ditk_ray.cluster.kuberay.discovery import forget

    try:
        forget(default_cluster_file(), kube.namespace, names)
    except BadConfigError as error:
        tell(f"they are still known to `ditk-ray submit`: {error}")


def _chosen(kube: Kube, given: argparse.Namespace) -> list[Piece]:
    from ditk_ray.cluster.kuberay.cluster_pieces import find_pieces
    from ditk_ray.config.nearest import did_you_mean

    find = partial(find_pieces, kube, without_kuberay=given.without_kuberay)
    if given.all:
        return find()
    found = {name: find(name) for name in dict.fromkeys(given.names)}
    if missing := [name for name, pieces in found.items() if not pieces]:
        known = {piece.cluster for piece in find()}
        what = f"ditk-ray made no such cluster or job in namespace {kube.namespace!r}"
        raise BadConfigError([Problem(name, what, did_you_mean(name, known)) for name in missing])
    return [piece for pieces in found.values() for piece in pieces]


def _wait(kube: Kube, pieces: Sequence[Piece], given: argparse.Namespace) -> int:
    from ditk_ray.cluster.kuberay.cluster_pieces import wait_until_gone

    left = wait_until_gone(kube, pieces, given.wait, without_kuberay=given.without_kuberay)
    if left:
        tell(f"error: still there: {', '.join(piece.title for piece in left)}")
    return 1 if left else 0
