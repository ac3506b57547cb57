"""`ditk-ray gc`: remove what dead sweeps and gone clusters have left on Kubernetes."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from ditk_ray.cli.cluster import note_kept, without_kuberay_option
from ditk_ray.cli.flags import ObjectCommand
from ditk_ray.cli.output import agrees, note, print_items
from ditk_ray.config.options import option
from ditk_ray.dijob.jobs import SWEEP
from ditk_ray.dijob.liveness import find_leftovers
from ditk_ray.errors import BadConfigError, Problem
from ditk_ray.kube.connection import Kube, connect
from ditk_ray.kube.objects import CLUSTER, VOLUME_CLAIMS, Piece, age_of
from ditk_ray.kuberay.apply import cluster_leftovers, find_pieces


class Gc(ObjectCommand):
    """Find and delete the DIJobs of dead sweeps, or the pieces of Ray clusters that are gone.

      ditk-ray gc                               show what is left over, and ask
      ditk-ray gc --format json                 only show it
      ditk-ray gc --clusters                    what is left of Ray clusters instead

    A running sweep gives a sign of life in the cluster every minute; one that has not for 10
    minutes is dead. So is one that was interrupted: `ditk-ray resume` finds its jobs only if they
    are still there. What `ditk-ray dijob create` made belongs to no sweep, and stays.

    With --clusters it looks for pieces of `ditk-ray cluster launch` and `run` whose RayCluster is
    gone, or whose RayJob is over. Claims hold data: they are kept unless --results is given.
    """

    clusters: bool = option("what is left of Ray clusters, not of sweeps", False)
    results: bool = option("with --clusters: also claims, with all their data", False)
    without_kuberay: bool = without_kuberay_option()
    yes: bool = option("do not ask", False)

    def run(self) -> int:
        for flag in ("results", "without_kuberay"):
            if getattr(self, flag) and not self.clusters:
                raise BadConfigError(Problem(f"--{flag}", "goes with --clusters only"))
        kube = connect(self.kube)
        found, kept = _find(kube, self)
        items = [_item(*each) for each in found]
        print_items(items, [key for key in (*items, {})[0] if key != "uid"], self.format)
        note_kept(kept)
        if not found:
            what = " of Ray clusters" if self.clusters else ""
            note(f"nothing is left over{what} in namespace {kube.namespace!r}")
        if not found or (self.format != "table" and not self.yes):
            return 0  # who reads JSON cannot be asked
        if not agrees(f"delete these {len(found)} objects?", self.yes):
            return 1
        # A sweep may have been resumed, or a cluster launched again, while the question stood.
        still = {piece.uid for piece, _ in _find(kube, self)[0]}
        for piece, _ in found:
            if piece.uid in still and kube.delete(piece):
                note(f"{piece.title} deleted")
        return 0


def _find(kube: Kube, given: Gc) -> tuple[list[tuple[Piece, str]], list[Piece]]:
    now = datetime.now(UTC)
    if not given.clusters:
        return find_leftovers(kube, now), []
    pieces = find_pieces(kube, without_kuberay=given.without_kuberay)
    found = cluster_leftovers(pieces, now)
    kept = [one for one, _ in found if one.resource == VOLUME_CLAIMS and not given.results]
    return [each for each in found if each[0] not in kept], kept


def _item(piece: Piece, why: str) -> dict[str, Any]:
    labels = piece.manifest["metadata"]["labels"]
    whose = {key.rpartition("/")[2]: labels[key] for key in (SWEEP, CLUSTER) if key in labels}
    about = {"kind": piece.resource.kind, "name": piece.name, "uid": piece.uid}
    return {**about, **whose, "age": age_of(piece.manifest, datetime.now(UTC)), "why": why}
