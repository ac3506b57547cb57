"""`ditk-ray dijob delete`: end jobs and remove them with all that is theirs."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from ditk_ray.cli.cluster_arguments import add_cluster, cluster_settings
from ditk_ray.cli.object_output import agrees, tell
from ditk_ray.errors import (
    BadConfigError,
    DitkRayError,
    KubeConflictError,
    KubeNotFoundError,
    Problem,
)

if TYPE_CHECKING:
    from ditk_ray.kube.connection import Kube
    from ditk_ray.kube.objects import Manifest

_EXAMPLES = """\
examples:
  ditk-ray dijob delete my-job
  ditk-ray dijob delete --sweep my_sweep            all jobs of a sweep, after a question
  ditk-ray dijob delete --all_finished --yes        all that succeeded or failed

A job that runs is ended. Its pods, its Service and its ConfigMap follow in the background.
A sweep that lives takes a trial whose job is deleted for lost, and may start it again:
`ditk-ray cancel` stops it. --all_finished leaves the jobs of living sweeps alone.
"""


def add_commands(verbs: Any) -> None:
    """Add `delete`."""
    parser = verbs.add_parser(
        "delete",
        help="delete jobs",
        description="Delete DIJobs with all that belongs to them.",
        epilog=_EXAMPLES,
    )
    parser.set_defaults(run=run)
    parser.add_argument("names", metavar="NAME", nargs="*", help="of DIJobs")
    parser.add_argument("--sweep", metavar="SWEEP", help="those of this sweep: name or key")
    parser.add_argument(
        "--all_finished", action="store_true", help="those that succeeded or failed"
    )
    parser.add_argument("--yes", action="store_true", help="do not ask before deleting several")
    add_cluster(parser)


def run(given: argparse.Namespace) -> int:
    """Delete what the arguments choose, and print the names."""
    from ditk_ray.cli.dijob_get import print_jobs
    from ditk_ray.kube.connection import connect

    if sum(map(bool, (given.names, given.sweep, given.all_finished))) != 1:
        what = "say which jobs: NAME, --sweep SWEEP or --all_finished, one of them"
        raise BadConfigError(Problem("delete", what))
    kube = connect(cluster_settings(given))
    jobs, missing = _chosen(kube, given)
    if len(jobs) > 1 and not given.yes:
        print_jobs(kube, jobs)
    if not jobs and not missing:
        tell(f"no DIJob in namespace {kube.namespace!r} has ended")
        return 0
    if len(jobs) > 1 and not agrees(f"delete these {len(jobs)} DIJobs?", given.yes):
        return 1
    for job in jobs:
        missing += _delete(kube, job)
    for error in missing:
        tell(f"error: {error}")
    return 1 if missing else 0


def _chosen(kube: Kube, given: argparse.Namespace) -> tuple[list[Manifest], list[DitkRayError]]:
    """Return the jobs, and what is wrong with names that no job has."""
    from ditk_ray.kube.job_choice import finished_jobs, jobs_of_sweep

    if given.sweep:
        return jobs_of_sweep(kube, given.sweep), []
    if given.all_finished:
        return finished_jobs(kube, datetime.now(UTC)), []
    jobs: list[Manifest] = []
    missing: list[DitkRayError] = []
    for name in dict.fromkeys(given.names):
        try:
            jobs.append(kube.dijobs.get(name))
        except KubeNotFoundError as error:
            missing.append(error)
    return jobs, missing


def _delete(kube: Kube, job: Manifest) -> list[DitkRayError]:
    """Delete the very job that was shown; return what is wrong if it is gone by now."""
    name = job["metadata"]["name"]
    try:
        kube.dijobs.delete(name, job["metadata"]["uid"])
    except (KubeNotFoundError, KubeConflictError) as error:
        return [error]
    print(f"dijob/{name} deleted", flush=True)
    return []
