"""`ditk-ray dijob patch` and `scale`: change a job that is there."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from ditk_ray.cli.cluster_arguments import add_cluster, cluster_settings
from ditk_ray.cli.object_output import add_object_format, print_value, tell
from ditk_ray.cli.sweep_arguments import positive

if TYPE_CHECKING:
    from ditk_ray.kube.objects import Manifest

_PATCH_EXAMPLES = """\
examples:
  ditk-ray dijob patch my-job -p '{"spec": {"cleanPodPolicy": "None"}}'
  ditk-ray dijob patch my-job -p 'metadata: {labels: {team: rl}}'

It is a merge: null removes a key, and a list such as spec.tasks is replaced as a whole.
The DIJob is changed; pods that it has keep what they were made with.
"""

_SCALE_EXAMPLES = """\
examples:
  ditk-ray dijob scale my-job --task collector --replicas 8

The DIJob is changed; `ditk-ray dijob get my-job --watch` shows what DI-orchestrator makes
of it. Pods that run keep the DI_NODES that they were started with.
"""


def add_commands(verbs: Any) -> None:
    """Add `patch` and `scale`."""
    parser = verbs.add_parser(
        "patch",
        help="change fields of a job",
        description="Merge values into a DIJob, unless DI-orchestrator would stumble over them.",
        epilog=_PATCH_EXAMPLES,
    )
    parser.set_defaults(run=patch)
    parser.add_argument("name", metavar="NAME", help="of the DIJob")
    parser.add_argument(
        "-p", "--patch", metavar="PATCH", required=True, help="the values, as JSON or YAML"
    )
    add_cluster(parser)
    add_object_format(parser)
    parser = verbs.add_parser(
        "scale",
        help="change a task's number of replicas",
        description="Change how many pods a task of a DIJob has.",
        epilog=_SCALE_EXAMPLES,
    )
    parser.set_defaults(run=scale)
    parser.add_argument("name", metavar="NAME", help="of the DIJob")
    parser.add_argument("--task", metavar="TASK", required=True, help="its name, or its type")
    parser.add_argument("--replicas", metavar="N", type=positive, required=True, help="1 or more")
    add_cluster(parser)
    add_object_format(parser)


def patch(given: argparse.Namespace) -> int:
    """Merge the patch, and say what came of it."""
    from ditk_ray.kube.connection import connect
    from ditk_ray.kube.job_changes import patch_job, read_patch

    changes = read_patch(given.patch)
    job, is_changed = patch_job(connect(cluster_settings(given)), given.name, changes)
    _report(job, "patched" if is_changed else "patched (no change)", given.format)
    return 0


def scale(given: argparse.Namespace) -> int:
    """Set the number of replicas, and say what came of it."""
    from ditk_ray.kube.connection import connect
    from ditk_ray.kube.job_changes import scale_job

    kube = connect(cluster_settings(given))
    job, is_changed = scale_job(kube, given.name, given.task, given.replicas)
    _report(job, "scaled" if is_changed else "scaled (no change)", given.format)
    return 0


def _report(job: Manifest, done: str, form: str) -> None:
    from ditk_ray.kube.dijobs import is_finished, phase_of

    if form == "table":
        print(f"dijob/{job['metadata']['name']} {done}")
    else:
        print_value(job, form)
    if is_finished(job):
        tell(f"the job has ended ({phase_of(job)}): no pod will come of it")
