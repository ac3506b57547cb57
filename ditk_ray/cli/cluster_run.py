"""`ditk-ray cluster run`: a sweep with a Ray cluster of its own."""

from __future__ import annotations

import argparse
from typing import Any

from ditk_ray.cli.arguments import seconds
from ditk_ray.cli.cluster_arguments import cluster_settings, shown_cluster
from ditk_ray.cli.cluster_launch import print_manifests, send, tell_costs
from ditk_ray.cli.launch_arguments import GROUP_RULE, add_launch, launch_request
from ditk_ray.cli.object_output import tell
from ditk_ray.cli.sweep_words import check_sweep

_EXAMPLES = f"""\
examples:
  ditk-ray cluster run --name night --image IMAGE --max_workers 8 -- tune --cfg_class \\
      CartpoleDQNJobCfg --num_samples 100
  ditk-ray cluster run --name night --image IMAGE --working_dir https://HOST/code.zip -- tune \\
      --cfg_class MyJobCfg

{GROUP_RULE}
The sweep is a RayJob: KubeRay makes a cluster for it, and takes that away when the sweep is over.
If the cluster is lost, KubeRay makes another, on which the sweep goes on where its results
end (`tune --resume_existing`); that is done --retries times. The code has to be in the image, or in
a zip file that --working_dir names (https://, s3:// or gs://), with the job_cfgs folder at its top.
Nothing of this machine is sent. The claims with results and records, and MLflow, stand until
`ditk-ray cluster delete NAME`.
"""


def add_commands(verbs: Any) -> None:
    """Add `run`."""
    parser = verbs.add_parser(
        "run",
        help="run a sweep with a cluster of its own, which resumes by itself",
        description="Run a sweep as a RayJob of KubeRay.",
        epilog=_EXAMPLES,
        usage="%(prog)s --name NAME --image IMAGE [options] -- tune ...",
    )
    parser.set_defaults(run=run)
    add_launch(parser)
    job = parser.add_argument_group("the job")
    job.add_argument(
        "--retries", metavar="N", type=_count, default=3, help="(default: %(default)s)"
    )
    job.add_argument(
        "--deadline", metavar="TIME", type=seconds, help="end it after this time, such as 24h"
    )
    job.add_argument("--working_dir", metavar="URI", help="a zip file with the code")
    parser.add_argument("command", metavar="tune ...", nargs="*", help="the sweep")


def run(given: argparse.Namespace) -> int:
    """Make the job and what it needs, and print what became of each object."""
    from ditk_ray.cluster.kuberay.launch_check import check_launch
    from ditk_ray.cluster.kuberay.object_names import MAX_JOB_NAME
    from ditk_ray.cluster.kuberay.ray_job_manifest import check_run
    from ditk_ray.cluster.kuberay.surroundings import run_manifests
    from ditk_ray.kube.connection import connect

    (options,) = check_launch(launch_request(given, most_name=MAX_JOB_NAME))
    check_sweep(given.command)
    job = check_run(given.command, options.name, given.retries, given.deadline, given.working_dir)
    manifests = run_manifests(options, job)
    if given.dry_run:
        print_manifests(manifests)
        return 0
    send(connect(cluster_settings(given)), manifests)
    tell_costs(options.name, manifests)
    where = shown_cluster(given)
    tell(f"to go on:\n  ditk-ray cluster status {options.name}{where}")
    tell(f"when you are done:\n  ditk-ray cluster delete {options.name}{where}")
    return 0


def _count(text: str) -> int:
    from ditk_ray.cluster.kuberay.request_values import MOST, whole_number

    number = whole_number(text)
    if number is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 0 to {MOST}")
    return number
