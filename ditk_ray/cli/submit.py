"""`ditk-ray submit`: send jobs to Ray clusters, and follow them."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ditk_ray.cli.arguments import seconds
from ditk_ray.cli.object_output import add_object_format, tell
from ditk_ray.cli.submit_settings import job_settings
from ditk_ray.cli.submitted_jobs import follow_one, list_all, stop_some
from ditk_ray.cli.sweep_arguments import positive
from ditk_ray.errors import BadConfigError, Problem

if TYPE_CHECKING:
    from ditk_ray.cluster.jobs.cluster_file import KnownCluster
    from ditk_ray.cluster.jobs.dispatch import Dispatch
    from ditk_ray.cluster.jobs.job_api import JobApi, Trust
    from ditk_ray.cluster.jobs.job_request import JobRequest, JobSettings

_TRIES_TO_FIND = 5
_EXAMPLES = """\
examples:
  ditk-ray submit -- tune --cfg_class CartpoleDQNJobCfg        a command of ditk-ray
  ditk-ray submit --cluster lab -- python train.py --seed 3    any program
  ditk-ray submit --cluster a --cluster b -- tune --cfg_class A --- tune --cfg_class B
  ditk-ray submit --jobs jobs.yaml                             [[tune, --cfg_class, A], ...]
  ditk-ray submit --no_wait -- tune --cfg_class A              print the id and leave
  ditk-ray submit --list
  ditk-ray submit --follow ID
  ditk-ray submit --stop ID

What follows -- is the job, word by word: no shell reads it. A bare --- separates jobs, which
are sent to the clusters as these become free. The working directory is shipped with the job
(in a git repository without what git ignores; never what .rayignore names), and so is
ditk_ray. The job's folder on the cluster is temporary: a sweep keeps its results in
$DITK_RAY_STORAGE (give it with --env), else in ~/ditk_ray_results of the node it runs on.

Clusters have names in ~/.cluster_config, a line `name: lab address: http://HOST:8265` each,
and tokens in ~/.ray/tokens/NAME, RAY_AUTH_TOKEN or ~/.ray/auth_token. Without --cluster and
--address jobs go to $RAY_ADDRESS, the clusters of that file, or http://127.0.0.1:8265; of
several, those that do not answer are told and left out.

Ctrl-C leaves the jobs running, or stops them with --on_interrupt stop; a second one leaves at
once. Exit code: the job's own; of several jobs 0 only if all succeeded, else that of the first
that did not; 2 if the input is wrong (then nothing was sent), 130 after Ctrl-C.
"""


def add_command(commands: Any) -> None:
    """Add `submit` to the parser's commands."""
    parser = commands.add_parser(
        "submit",
        help="run commands as jobs on one or several Ray clusters",
        description="Send jobs to Ray clusters, with the code, and show their logs.",
        epilog=_EXAMPLES,
        usage="ditk-ray submit [OPTIONS] -- JOB [--- JOB ...]",
    )
    parser.set_defaults(run=run)
    add_submit_arguments(parser)
    instead = parser.add_argument_group("instead of sending a job")
    instead.add_argument("--list", action="store_true", help="list the jobs of the clusters")
    instead.add_argument("--follow", metavar="ID", help="show the log of a job until it ends")
    instead.add_argument(
        "--stop", metavar="ID", action="append", default=[], help="end a job (repeatable)"
    )
    parser.add_argument("words", metavar="JOB", nargs="*", help="after --: the job's words")


def add_submit_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what is said of jobs and clusters, which `scripts/submit_job.py` takes, too."""
    where = parser.add_argument_group("where to run it")
    where.add_argument(
        "--cluster", metavar="NAME", action="append", default=[], help="(repeatable)"
    )
    where.add_argument(
        "--address", metavar="URL", action="append", default=[], help="of a dashboard (repeatable)"
    )
    where.add_argument(
        "--config_file", metavar="FILE", type=Path, help="of clusters (default: ~/.cluster_config)"
    )
    where.add_argument("--ca_cert", metavar="FILE", type=Path, help="whom to trust with https")
    where.add_argument("--insecure", action="store_true", help="believe any certificate")

    what = parser.add_argument_group("what to send")
    what.add_argument("--jobs", metavar="FILE", type=Path, help="YAML or JSON of argument lists")
    what.add_argument(
        "--working_dir", metavar="DIR", type=Path, default=Path(), help="(default: this folder)"
    )
    what.add_argument(
        "--env",
        metavar="K[=V]",
        action="append",
        default=[],
        help="a variable of the job; without =V it has the value that it has here, so that a "
        "secret is in no list of processes (repeatable)",
    )
    what.add_argument(
        "--metadata", metavar="K=V", action="append", default=[], help="of the job (repeatable)"
    )
    what.add_argument("--entrypoint_cpus", metavar="N", type=float, help="for the job's program")
    what.add_argument("--entrypoint_gpus", metavar="N", type=float)
    what.add_argument("--entrypoint_memory", metavar="SIZE", help="such as 4G")

    how = parser.add_argument_group("how to follow it")
    how.add_argument(
        "--jobs_per_cluster", metavar="N", type=positive, default=1, help="at once (default: 1)"
    )
    how.add_argument("--no_wait", action="store_true", help="print the ids and leave")
    how.add_argument(
        "--on_interrupt",
        choices=["detach", "stop"],
        default="detach",
        help="what Ctrl-C does to the jobs (default: detach, they go on)",
    )
    how.add_argument(
        "--lost_after",
        metavar="TIME",
        type=seconds,
        default=60.0,
        help="a cluster that does not answer for so long is lost (default: 60s)",
    )
    add_object_format(parser)


def run(given: argparse.Namespace) -> int:
    """Do what the arguments say: list, follow, stop or send."""
    asked = [flag for flag in ("list", "follow", "stop") if getattr(given, flag)]
    if len(asked) + bool(given.words or given.jobs) > 1:
        what = "does not go together with another of them, nor with a job"
        raise BadConfigError(Problem(f"--{asked[0]}", what))
    if asked:
        clusters = _clusters(given, is_for_all=True)
        look = {"list": list_all, "follow": follow_one, "stop": stop_some}[asked[0]]
        return asyncio.run(look(clusters, _trust(given), given))
    return submit(given, _job_words(given))


def submit(given: argparse.Namespace, jobs: Sequence[Sequence[str]]) -> int:
    """Send jobs, each given as its words, and return the exit code."""
    from ditk_ray.cli.main import command_names
    from ditk_ray.cluster.jobs.job_request import make_job

    requests = [make_job(words, command_names()) for words in jobs]
    clusters = _clusters(given, has_several_jobs=len(requests) > 1)
    settings = job_settings(given)
    return asyncio.run(_send(given, requests, clusters, settings))


async def _send(
    given: argparse.Namespace,
    jobs: Sequence[JobRequest],
    clusters: Sequence[KnownCluster],
    settings: JobSettings,
) -> int:
    from ditk_ray.cli.submit_printer import JobPrinter, print_outcomes
    from ditk_ray.cluster.jobs.connections import check_versions, connected
    from ditk_ray.cluster.jobs.dispatch import Dispatch
    from ditk_ray.cluster.jobs.job_request import is_own

    # Whoever names clusters wants those; of all that are known, one may be gone for long.
    tell_silent = None if given.cluster or given.address else tell
    async with connected(clusters, _trust(given), tell_silent) as apis:
        check_versions(apis, any(map(is_own, jobs)), tell)
        printer = JobPrinter(given.format, len(jobs) > 1)
        dispatch = Dispatch(list(apis), settings, printer, given.jobs_per_cluster, given.lost_after)
        try:
            if given.no_wait:
                return await _send_all(dispatch, jobs, given.format)
            outcomes = await dispatch.run(jobs)
        except asyncio.CancelledError:  # the first Ctrl-C
            return await _leave(dispatch, given.on_interrupt)
    print_outcomes(outcomes, given.format)
    return next((outcome.state.code for outcome in outcomes if outcome.state.code), 0)


async def _send_all(dispatch: Dispatch, jobs: Sequence[JobRequest], form: str) -> int:
    """Send jobs without following them, and print the ids of those that were sent."""
    from ditk_ray.errors import ClusterUnreachableError, JobRefusedError

    try:
        await dispatch.send(jobs)
    except (ClusterUnreachableError, JobRefusedError) as error:
        tell(f"error: {error}")
        tell(f"{len(dispatch.sent)} of {len(jobs)} jobs were sent")
        if isinstance(error, ClusterUnreachableError):
            _tell_doubtful(dispatch)
        return 1
    finally:
        _print_sent(dispatch, form)
    return 0


def _tell_doubtful(dispatch: Dispatch) -> None:
    """Name the job whose answer was lost: sent once more as a new one, it might run twice."""
    for job_id, (api, _) in dispatch.running.items():
        if job_id not in dispatch.sent:
            what = f"{job_id} may have been started on {api.cluster.name}: look before you send it"
            tell(f"{what} again\n{_how_to_go_on(job_id, api)}")


async def _leave(dispatch: Dispatch, on_interrupt: str) -> int:
    """Say what becomes of the jobs, or stop them; 130 is what a shell expects after Ctrl-C."""
    for api, job in dispatch.running.values():
        name = api.cluster.name
        if on_interrupt == "stop":
            await _stop(api, job)
        else:
            tell(f"\n{job.id} goes on on {name}\n{_how_to_go_on(job.id, api)}")
    for job in dispatch.waiting:
        tell(f"{job} was not sent")
    return 130


async def _stop(api: JobApi, job: JobRequest) -> None:
    from ditk_ray.cli.submitted_jobs import stop_job
    from ditk_ray.errors import DitkRayError

    try:
        tell(f"\n{job.id} is being stopped (Ctrl-C again leaves at once)")
        # What was just asked for may begin a moment later.
        for _ in range(_TRIES_TO_FIND):
            state = await stop_job(api, job.id)
            if state is not None:
                break
            await asyncio.sleep(1)
        tell(f"{job.id} {state.status.lower()}" if state else f"{job.id} had not begun")
    except DitkRayError as error:
        tell(f"{job.id} could not be stopped: {error}\n{_how_to_go_on(job.id, api)}")


def _how_to_go_on(job_id: str, api: JobApi) -> str:
    where = f"--address {api.cluster.address}"
    return (
        f"    follow it: ditk-ray submit --follow {job_id} {where}\n"
        f"    stop it:   ditk-ray submit --stop {job_id} {where}"
    )


def _print_sent(dispatch: Dispatch, form: str) -> None:
    from ditk_ray.cli.object_output import print_value

    sent = [(job.id, api.cluster) for api, job in dispatch.sent.values()]
    if form == "table":
        for job_id, _ in sent:
            print(job_id)
    else:
        rows = [{"id": one, "cluster": at.name, "address": at.address} for one, at in sent]
        print_value(rows, form)


def _job_words(given: argparse.Namespace) -> list[list[str]]:
    from ditk_ray.cluster.jobs.job_list import read_jobs, split_words

    if given.words and given.jobs:
        raise BadConfigError(Problem("--jobs", "does not go together with a job after --"))
    if given.jobs:
        return read_jobs(given.jobs)
    if not given.words:
        hint = "ditk-ray submit -- tune --cfg_class CartpoleDQNJobCfg"
        raise BadConfigError(Problem("JOB", "nothing is there to send", hint))
    return split_words(given.words)


def _clusters(
    given: argparse.Namespace, is_for_all: bool = False, has_several_jobs: bool = False
) -> list[KnownCluster]:
    from ditk_ray.cluster.jobs.cluster_choice import choose_clusters
    from ditk_ray.cluster.jobs.cluster_file import default_cluster_file

    file = given.config_file or default_cluster_file()
    if given.config_file and not file.is_file():
        raise BadConfigError(Problem(f"--config_file {file}", "there is no such file"))
    return choose_clusters(given.cluster, given.address, file, is_for_all or has_several_jobs)


def _trust(given: argparse.Namespace) -> Trust:
    from ditk_ray.cluster.jobs.job_api import Trust

    return Trust(given.ca_cert, given.insecure)
