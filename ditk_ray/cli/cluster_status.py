"""`ditk-ray cluster status`: all about one Ray cluster, and why it is not ready."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from ditk_ray.cli.arguments import seconds
from ditk_ray.cli.cluster_arguments import add_cluster, cluster_settings
from ditk_ray.cli.object_output import add_object_format, print_table, print_value, tell
from ditk_ray.errors import BadConfigError

if TYPE_CHECKING:
    from ditk_ray.cluster.kuberay.ray_cluster_health import Health
    from ditk_ray.cluster.kuberay.ray_job_health import JobHealth
    from ditk_ray.kube.connection import Kube

_EXAMPLES = """\
examples:
  ditk-ray cluster status rl
  ditk-ray cluster status rl --wait 10m     until it is ready, or the time is over
  ditk-ray cluster status rl --format json

NAME may also be a RayJob's. A cluster is ready when its head and its MLflow answer, and as many
workers are there as have to be. Exit code: 0 if it is ready (a RayJob: if it has not failed),
else 1.
"""


def add_commands(verbs: Any) -> None:
    """Add `status`."""
    parser = verbs.add_parser(
        "status",
        help="show whether a Ray cluster is ready, and why not",
        description="Show all about one Ray cluster: its groups, its pods, its addresses, what "
        "is wrong with it, and what to do.",
        epilog=_EXAMPLES,
    )
    parser.set_defaults(run=run)
    parser.add_argument("name", metavar="NAME", help="of the cluster, or of a RayJob")
    parser.add_argument(
        "--wait", metavar="TIME", type=seconds, default=0.0, help="for it to be ready"
    )
    add_cluster(parser)
    add_object_format(parser)


def run(given: argparse.Namespace) -> int:
    """Print how a cluster stands."""
    from ditk_ray.cluster.kuberay.found_clusters import find_job
    from ditk_ray.kube.connection import connect

    kube = connect(cluster_settings(given))
    job = find_job(kube, given.name, datetime.now(UTC))
    if job is not None and job.is_over:
        return _show_job(kube, job, given.format)
    return _show_cluster(kube, job, given)


def _show_cluster(kube: Kube, job: JobHealth | None, given: argparse.Namespace) -> int:
    from ditk_ray.cluster.kuberay.cluster_waiting import wait_for_cluster
    from ditk_ray.cluster.kuberay.found_costs import find_costs

    try:
        health = wait_for_cluster(kube, given.name, given.wait, tell)
    except BadConfigError:
        if job is None:
            raise
        return _show_job(kube, job, given.format)  # it waits in a queue, or for its next try
    costs = find_costs(kube, health.name)
    if given.format != "table":
        about = {"costs": costs, "job": asdict(job) if job else None}
        print_value({**asdict(health), **about}, given.format)
    else:
        if job is not None:
            _print_job(job)
        _print_health(health)
        _print_costs(costs)
        _tell_next(health)
    is_well = health.is_ready if job is None else job.is_ok
    return 0 if is_well else 1


def _show_job(kube: Kube, job: JobHealth, form: str) -> int:
    from ditk_ray.cluster.kuberay.found_costs import find_costs

    costs = find_costs(kube, job.name)
    if form == "table":
        _print_job(job)
        _print_costs(costs)
    else:
        print_value({"job": asdict(job), "costs": costs}, form)
    return 0 if job.is_ok else 1


def _print_costs(costs: list[str]) -> None:
    if costs:
        print("Costs money while it stands:")
    for line in costs:
        print(f"  {line}")


def _print_job(job: JobHealth) -> None:
    head = {
        "RayJob": job.name,
        "State": f"{job.state} {job.job_status}".strip(),
        "Failed": f"{job.failed} times" if job.failed else "",
        "Why": job.why,
    }
    print_table([[f"{key}:", value] for key, value in head.items() if value])


def _print_health(health: Health) -> None:
    from ditk_ray.kube.ages import show_age

    head = {
        "Name": health.name,
        "Namespace": health.namespace,
        "State": health.state,
        "Why": health.why,
        "Age": show_age(health.age),
        "Jobs": health.job_address or "no Service yet",
        "MLflow": health.mlflow_uri or "none",
        "Guarded by": _guard(health.token_secret),
    }
    print_table([[f"{key}:", value] for key, value in head.items() if value])
    _print_groups(health)
    _print_pods(health)
    if health.problems:
        print("Problems:")
    for problem in health.problems:
        print(f"  {problem.what}" + (f"\n    {problem.hint}" if problem.hint else ""))


def _guard(secret: str | None) -> str:
    return f"a token, in Secret {secret}" if secret else "nothing: open to all who reach it"


def _print_groups(health: Health) -> None:
    groups = [
        [each.name, f"{of.ready}/{of.desired}", str(of.least), str(of.most)]
        for each in health.groups
        for of in [each.workers]
    ]
    print("Groups:" + ("" if groups else " none"))
    if groups:
        print_table([["NAME", "READY", "MIN", "MAX"], *groups], indent="  ")


def _print_pods(health: Health) -> None:
    from ditk_ray.kube.ages import show_age

    pods = [
        [
            each.name,
            each.group,
            "Ready" if each.is_ready else each.phase or "-",
            each.node or "-",
            show_age(each.age),
            each.why,
        ]
        for each in health.pods
    ]
    print("Pods:" + ("" if pods else " none"))
    if pods:
        print_table([["NAME", "GROUP", "STATE", "NODE", "AGE", "WHY"], *pods], indent="  ")


def _tell_next(health: Health) -> None:
    """Tell what to do with a cluster that is ready."""
    if health.is_ready:
        tell(
            f"reach it with `ditk-ray cluster forward {health.name}`, and meanwhile\n"
            f"`ditk-ray submit --cluster {health.name} -- tune --cfg_class NAME`"
        )
