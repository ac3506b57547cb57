"""`ditk-ray gc --clusters`: remove what is left of Ray clusters."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from ditk_ray.cli.cluster_arguments import cluster_settings
from ditk_ray.cli.cluster_delete import tell_kept
from ditk_ray.cli.object_output import agrees, print_table, print_value, tell

if TYPE_CHECKING:
    from ditk_ray.cluster.kuberay.cluster_leftovers import ClusterLeftover
    from ditk_ray.cluster.kuberay.cluster_pieces import Piece
    from ditk_ray.kube.connection import Kube


def run_clusters(given: argparse.Namespace) -> int:
    """Show what is left over of clusters, and delete it if that is wanted."""
    from ditk_ray.cluster.kuberay.cluster_pieces import delete_pieces
    from ditk_ray.kube.connection import connect

    kube = connect(cluster_settings(given))
    found, kept = _find(kube, given)
    is_table = given.format == "table"
    if not is_table:
        print_value([_described(item) for item in found], given.format)
    elif found:
        _print(found)
    tell_kept(kept)
    if not found:
        tell(f"nothing is left over of Ray clusters in namespace {kube.namespace!r}")
        return 0
    if not is_table and not given.yes:
        return 0
    if not agrees(f"delete these {len(found)} objects?", given.yes):
        return 1
    # A cluster may have been launched again while the question stood.
    still = {item.piece.uid for item in _find(kube, given)[0]}
    pieces = [item.piece for item in found if item.piece.uid in still]
    delete_pieces(kube, pieces, lambda piece: tell(f"{piece.title} deleted"))
    return 0


def _find(kube: Kube, given: argparse.Namespace) -> tuple[list[ClusterLeftover], list[Piece]]:
    """Return what may go, and what is left over and kept for its data."""
    from ditk_ray.cluster.kuberay.cluster_leftovers import cluster_leftovers
    from ditk_ray.cluster.kuberay.cluster_pieces import find_pieces

    pieces = find_pieces(kube, without_kuberay=given.without_kuberay)
    found = cluster_leftovers(pieces, datetime.now(UTC))
    kept = [item.piece for item in found if item.piece.is_data and not given.results]
    return [item for item in found if item.piece not in kept], kept


def _print(found: list[ClusterLeftover]) -> None:
    from ditk_ray.kube.ages import show_age

    headings = ["KIND", "NAME", "CLUSTER", "AGE", "WHY"]
    rows = [
        [
            item.piece.resource.kind,
            item.piece.name,
            item.piece.cluster,
            show_age(item.age),
            item.why,
        ]
        for item in found
    ]
    print_table([headings, *rows])


def _described(item: ClusterLeftover) -> dict[str, Any]:
    piece = item.piece
    about = {"kind": piece.resource.kind, "name": piece.name, "uid": piece.uid}
    return {**about, "cluster": piece.cluster, "age": item.age, "why": item.why}
