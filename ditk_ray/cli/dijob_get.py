"""`ditk-ray dijob get`: how jobs stand."""

from __future__ import annotations

import argparse
import threading
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NoReturn

from ditk_ray.cli.cluster_arguments import add_cluster, cluster_settings
from ditk_ray.cli.object_output import (
    add_object_format,
    column_widths,
    columns,
    print_table,
    print_value,
    tell,
)
from ditk_ray.errors import BadConfigError, Problem

if TYPE_CHECKING:
    from ditk_ray.kube.connection import Kube
    from ditk_ray.kube.objects import Manifest
    from ditk_ray.kube.watching import Change

_EXAMPLES = """\
examples:
  ditk-ray dijob get                        all jobs of the namespace
  ditk-ray dijob get my-job --format yaml
  ditk-ray dijob get --sweep my_sweep
  ditk-ray dijob get --watch                a line for every change, until Ctrl-C

JSON and YAML have what the API server says, as `kubectl get dijobs -o json` prints it.
"""


def add_commands(verbs: Any) -> None:
    """Add `get`."""
    parser = verbs.add_parser(
        "get",
        help="list jobs, or show one",
        description="List the DIJobs of a namespace, or show one.",
        epilog=_EXAMPLES,
    )
    parser.set_defaults(run=run)
    parser.add_argument("name", metavar="NAME", nargs="?", help="(default: all)")
    parser.add_argument("--sweep", metavar="SWEEP", help="only jobs of this sweep: name or key")
    parser.add_argument("--watch", action="store_true", help="go on with every change")
    add_cluster(parser)
    add_object_format(parser)


def run(given: argparse.Namespace) -> int:
    """Print the jobs that the arguments choose."""
    from ditk_ray.kube.connection import connect
    from ditk_ray.kube.job_choice import sweep_of

    if given.name and given.sweep:
        raise BadConfigError(Problem("--sweep", "does not go together with NAME"))
    if given.watch and given.format != "table":
        raise BadConfigError(Problem("--watch", "goes with tables only"))
    kube = connect(cluster_settings(given))
    jobs = _chosen(kube, given)
    if given.watch:
        _watch(kube, given.name, jobs, sweep_of(jobs[0]) if given.sweep else "")
    if given.format != "table":
        shown = [_without_managers(job) for job in jobs]
        whole = {"apiVersion": "v1", "kind": "List", "items": shown}
        print_value(shown[0] if given.name else whole, given.format)
    else:
        print_jobs(kube, jobs)
    return 0


def print_jobs(kube: Kube, jobs: list[Manifest]) -> None:
    """Print a table of jobs, or say that there are none."""
    from ditk_ray.kube.job_table import job_row, job_table

    if not jobs:
        tell(f"no DIJobs in namespace {kube.namespace!r}")
        return
    now = datetime.now(UTC)
    print_table(job_table(job_row(job, now) for job in jobs))


def _chosen(kube: Kube, given: argparse.Namespace) -> list[Manifest]:
    from ditk_ray.kube.job_choice import jobs_of_sweep

    if given.name:
        return [kube.dijobs.get(given.name)]
    return jobs_of_sweep(kube, given.sweep) if given.sweep else kube.dijobs.list()


def _without_managers(job: Manifest) -> Manifest:
    """Leave out who wrote which field, which kubectl does not show either."""
    kept = {key: value for key, value in job["metadata"].items() if key != "managedFields"}
    return {**job, "metadata": kept}


def _watch(kube: Kube, name: str | None, jobs: list[Manifest], sweep: str) -> NoReturn:
    """Print a line for each job and each change of one, until interrupted."""
    from ditk_ray.kube.job_choice import sweep_of
    from ditk_ray.kube.job_table import HEADINGS, SWEEP_HEADINGS, job_row
    from ditk_ray.kube.labels import SWEEP
    from ditk_ray.kube.watching import Watcher

    has_sweep = any(map(sweep_of, jobs))
    rows = [job_row(job, datetime.now(UTC)).cells(has_sweep) for job in jobs]
    headings = [*HEADINGS, *(SWEEP_HEADINGS if has_sweep else ())]
    # What comes later may be wider; then its line stands out, as with kubectl.
    widths = column_widths([headings, *rows])
    widths[1] = max(widths[1], len("Rescheduling"))
    print(columns([headings], widths)[0], flush=True)
    has_enough = threading.Event()

    def show(change: Change) -> None:
        row = job_row(change.object, datetime.now(UTC), change.kind == "DELETED")
        try:
            print(columns([row.cells(has_sweep)], widths)[0], flush=True)
        except BrokenPipeError:
            has_enough.set()

    labels = f"{SWEEP}={sweep}" if sweep else ""
    watcher = Watcher(kube.dijobs, labels, show, f"metadata.name={name}" if name else "")
    try:
        watcher.start()
        has_enough.wait()
    finally:
        watcher.close()
    raise BrokenPipeError
