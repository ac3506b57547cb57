"""`ditk-ray dijob describe`: all about one job."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from ditk_ray.cli.cluster_arguments import add_cluster, cluster_settings
from ditk_ray.cli.object_output import add_object_format, print_table, print_value

if TYPE_CHECKING:
    from ditk_ray.kube.job_description import Event, JobDescription

_EXAMPLES = """\
examples:
  ditk-ray dijob describe my-job
  ditk-ray dijob describe my-job --format json
"""


def add_commands(verbs: Any) -> None:
    """Add `describe`."""
    parser = verbs.add_parser(
        "describe",
        help="show a job's phases, tasks, pods and events",
        description="Show all about one DIJob: its phase and what came before, its tasks, its "
        "pods with what is wrong with them, and its events.",
        epilog=_EXAMPLES,
    )
    parser.set_defaults(run=run)
    parser.add_argument("name", metavar="NAME", help="of the DIJob")
    add_cluster(parser)
    add_object_format(parser)


def run(given: argparse.Namespace) -> int:
    """Print all about a job."""
    from ditk_ray.kube.connection import connect
    from ditk_ray.kube.job_description import describe_job

    described = describe_job(connect(cluster_settings(given)), given.name, datetime.now(UTC))
    if given.format == "table":
        _print_description(described)
    else:
        whole = asdict(described)
        print_value({**whole.pop("row"), **whole}, given.format)
    return 0


def _print_description(job: JobDescription) -> None:
    from ditk_ray.kube.ages import show_age

    row = job.row
    head = {
        "Name": row.name,
        "Namespace": job.namespace,
        "Created": f"{job.created} ({show_age(row.age)} ago)",
        "Labels": " ".join(f"{key}={value}" for key, value in job.labels.items()),
        "Spec": " ".join(f"{key}={value}" for key, value in job.spec.items()),
        "Phase": row.phase or "none yet",
        "Why": job.why,
        "Pods": f"{row.ready} ready of {row.replicas}, "
        f"{row.restarts} restarts, {row.reschedules} reschedules",
    }
    print_table([[f"{key}:", value] for key, value in head.items() if value])
    conditions = [
        [each.phase, "now" if each.is_current else "", each.at, each.message or each.reason]
        for each in job.conditions
    ]
    _print_section("Conditions", ["PHASE", "", "SINCE", "MESSAGE"], conditions)
    tasks = [
        [each.name, each.type, str(each.replicas), _show_counts(each.pods), each.image]
        for each in job.tasks
    ]
    _print_section("Tasks", ["NAME", "TYPE", "REPLICAS", "PODS", "IMAGE"], tasks)
    pods = [
        [each.name, each.state, str(each.restarts), each.node or "-", show_age(each.age), each.why]
        for each in job.pods
    ]
    _print_section("Pods", ["NAME", "STATE", "RESTARTS", "NODE", "AGE", "WHY"], pods)
    events = [
        [show_age(each.age), each.type, _reason(each), each.object, each.message]
        for each in job.events
    ]
    _print_section("Events", ["AGE", "TYPE", "REASON", "OBJECT", "MESSAGE"], events)


def _print_section(title: str, headings: list[str], lines: list[list[str]]) -> None:
    print(f"{title}:" + ("" if lines else " none"))
    if lines:
        print_table([headings, *lines], indent="  ")


def _show_counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} {phase}" for phase, count in counts.items()) or "-"


def _reason(event: Event) -> str:
    return f"{event.reason} (x{event.count})" if event.count > 1 else event.reason
