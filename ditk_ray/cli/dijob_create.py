"""`ditk-ray dijob create`: submit one job from a template."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

from ditk_ray.cli.cluster_arguments import add_cluster, cluster_settings
from ditk_ray.cli.object_output import add_object_format, print_value

_EXAMPLES = """\
examples:
  ditk-ray dijob create -f job.yaml
  ditk-ray dijob create -f job.yaml --config cartpole_dqn_config.py
  ditk-ray dijob create -f job.yaml --name second-try --namespace rl

FILE holds a DIJob and, if it likes, a ConfigMap. The text of CONFIG.py goes into the key of
the ConfigMap that is left empty; where FILE has no ConfigMap, it is /etc/ditk-ray/config.py
in every container. The ConfigMap gets the job's name, and goes with the job. The job is of
no sweep: `ditk-ray gc` leaves it alone.
"""


def add_commands(verbs: Any) -> None:
    """Add `create`."""
    parser = verbs.add_parser(
        "create",
        help="submit a job from a file",
        description="Submit one DIJob from a file, after checking what DI-orchestrator would "
        "stumble over.",
        epilog=_EXAMPLES,
    )
    parser.set_defaults(run=run)
    parser.add_argument("-f", "--file", metavar="FILE", type=Path, required=True, help="a template")
    parser.add_argument("--config", metavar="CONFIG.py", type=Path, help="the script to put in")
    parser.add_argument("--name", metavar="NAME", help="(default: FILE's metadata.name)")
    add_cluster(parser)
    add_object_format(parser)


def run(given: argparse.Namespace) -> int:
    """Submit the job and print its name."""
    from ditk_ray.kube.connection import connect
    from ditk_ray.kube.single_job import build_job, read_config
    from ditk_ray.kube.submission import submit_job
    from ditk_ray.kube.template import read_template

    script = read_config(given.config) if given.config is not None else None
    template = read_template(given.file, needs_script=script is not None)
    settings = cluster_settings(given)
    kube = connect(replace(settings, namespace=given.namespace or template.namespace))
    order = build_job(template, kube.namespace, script, given.name)
    job = submit_job(kube, order).job
    if given.format == "table":
        print(f"dijob/{order.name} created")
    else:
        print_value(job, given.format)
    return 0
