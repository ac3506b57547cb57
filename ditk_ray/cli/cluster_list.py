"""`ditk-ray cluster list`: the Ray clusters and RayJobs of a namespace."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from ditk_ray.cli.cluster_arguments import add_cluster, cluster_settings
from ditk_ray.cli.object_output import add_object_format, print_table, print_value, tell

if TYPE_CHECKING:
    from ditk_ray.cluster.kuberay.ray_cluster_health import Health
    from ditk_ray.cluster.kuberay.ray_job_health import JobHealth

_EXAMPLES = """\
examples:
  ditk-ray cluster list
  ditk-ray cluster list --namespace rl --format json

WORKERS are those that are ready of those that are wanted now, and between which numbers the
autoscaler may choose; SIZE is what those and the head ask for, which costs money while it stands.
`ditk-ray cluster status NAME` tells all about one.
"""


def add_commands(verbs: Any) -> None:
    """Add `list`."""
    parser = verbs.add_parser(
        "list",
        help="list Ray clusters and RayJobs, and what is wrong with them",
        description="List the Ray clusters and RayJobs of a namespace, whoever made them.",
        epilog=_EXAMPLES,
    )
    parser.set_defaults(run=run)
    add_cluster(parser)
    add_object_format(parser)


def run(given: argparse.Namespace) -> int:
    """Print how all clusters stand."""
    from ditk_ray.cluster.kuberay.found_clusters import find_all
    from ditk_ray.cluster.kuberay.found_costs import find_claims
    from ditk_ray.cluster.kuberay.standing_costs import claim_text
    from ditk_ray.kube.connection import connect

    kube = connect(cluster_settings(given))
    found = find_all(kube, datetime.now(UTC))
    claims = [claim_text(claim) for claim in find_claims(kube)]
    if given.format != "table":
        print_value({**asdict(found), "claims": claims}, given.format)
        return 0
    if found.clusters:
        _print_clusters(found.clusters)
    if found.clusters and found.jobs:
        print()
    if found.jobs:
        _print_jobs(found.jobs)
    if not found.clusters and not found.jobs:
        tell(f"no Ray clusters in namespace {kube.namespace!r}")
    if claims:
        tell(f"claims, which cost money with or without a cluster: {'; '.join(claims)}")
    return 0


def _print_clusters(clusters: list[Health]) -> None:
    from ditk_ray.kube.ages import show_age

    headings = ["NAME", "STATE", "WORKERS", "SIZE", "AGE", "MLFLOW", "WHY"]
    rows = [
        [
            each.name,
            each.state,
            str(each.workers),
            each.size or "-",
            show_age(each.age),
            each.mlflow_uri or "-",
            each.why,
        ]
        for each in clusters
    ]
    print_table([headings, *rows])


def _print_jobs(jobs: list[JobHealth]) -> None:
    from ditk_ray.kube.ages import show_age

    headings = ["RAYJOB", "STATE", "JOB", "CLUSTER", "AGE", "WHY"]
    rows = [
        [
            each.name,
            each.state,
            each.job_status or "-",
            each.cluster or "-",
            show_age(each.age),
            each.why,
        ]
        for each in jobs
    ]
    print_table([headings, *rows])
