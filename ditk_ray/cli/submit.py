"""`ditk-ray submit`: send jobs to Ray clusters, and follow them."""

from __future__ import annotations

import asyncio
import sys
import textwrap
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import IO, Any, ClassVar

from ditk_ray.cli.flags import Command, ObjectFormat, format_option
from ditk_ray.cli.main import COMMANDS
from ditk_ray.cli.output import LineBuffer, note, print_items, print_value
from ditk_ray.config.options import option
from ditk_ray.errors import BadConfigError, ClusterUnreachableError, DitkRayError, Problem
from ditk_ray.provenance.snapshot import describe_origin
from ditk_ray.submit.clusters import KnownCluster, choose_clusters, default_cluster_file
from ditk_ray.submit.code import CodePackage, pack_folder, pack_this_package
from ditk_ray.submit.dispatch import Dispatch, follow_job
from ditk_ray.submit.job_api import JobApi, check_versions, connected
from ditk_ray.submit.jobs import (
    Job,
    JobState,
    JobStatus,
    SubmitOptions,
    make_job,
    read_jobs,
    split_words,
)
from ditk_ray.util.suggest import did_you_mean
from ditk_ray.util.units import show_seconds

_TRIES_TO_FIND = 5
_COMMAND_WIDTH = 80
_INSTEAD = "instead of sending a job"


@dataclass(frozen=True, kw_only=True)
class SendOptions(SubmitOptions):
    """What is said of jobs and clusters, by `scripts/submit_job.py`, too."""

    format: ObjectFormat = format_option()


class Submit(SendOptions, Command):
    """Send jobs to Ray clusters, with the code, and show their logs.

      ditk-ray submit -- tune --cfg_class CartpoleDQNJobCfg        a command of ditk-ray
      ditk-ray submit --cluster lab -- python train.py --seed 3    any program
      ditk-ray submit --cluster a --cluster b -- tune --cfg_class A --- tune --cfg_class B
      ditk-ray submit --jobs jobs.yaml                             [[tune, --cfg_class, A], ...]
      ditk-ray submit --list                                       or --follow ID, --stop ID

    What follows -- is passed to the job unchanged, without a shell. A bare --- separates jobs,
    sent to the clusters as these become free. The working directory is shipped with the job
    (in a git repository without what git ignores; never what .rayignore names), and so is
    ditk_ray. The job's folder on the cluster is temporary: a sweep keeps its results in
    $DITK_RAY_STORAGE (give it with --env), else in ~/ditk_ray_results of the node it runs on.

    Clusters have names in ~/.cluster_config, a line `name: lab address: http://HOST:8265` each,
    and tokens in ~/.ray/tokens/NAME, RAY_AUTH_TOKEN or ~/.ray/auth_token. Without --cluster and
    --address jobs go to $RAY_ADDRESS, the clusters of that file, or http://127.0.0.1:8265; of
    several, those that do not answer are reported and left out.

    Ctrl-C leaves the jobs running, or stops them with --on_interrupt stop; a second one exits at
    once. Exit code: the job's own; of several jobs 0 only if all succeeded, else that of the first
    that did not; 2 if the input is wrong (then nothing was sent), 130 after Ctrl-C.
    """

    usage: ClassVar = "ditk-ray submit [OPTIONS] -- JOB [--- JOB ...]"
    list: bool = option("list the jobs of the clusters", False, group=_INSTEAD)
    follow: str | None = option("show the log of a job until it ends", metavar="ID", group=_INSTEAD)
    stop: tuple[str, ...] = option("end a job (repeatable)", (), metavar="ID", group=_INSTEAD)
    words: tuple[str, ...] = option("after --: the job's words", (), positional=True, metavar="JOB")

    def run(self) -> int:
        asked = [flag for flag in ("list", "follow", "stop", "jobs") if getattr(self, flag)]
        if len(asked) + bool(self.words) > 1:
            what = "cannot be combined with another of them, or with a job after --"
            raise BadConfigError(Problem(f"--{asked[0]}", what))
        if self.jobs:
            return submit(self, read_jobs(self.jobs))
        if asked:
            look = {"list": _list_all, "follow": _follow_one, "stop": _stop_some}[asked[0]]
            return asyncio.run(look(self, _clusters(self, is_one_enough=False)))
        if not self.words:
            hint = "ditk-ray submit -- tune --cfg_class CartpoleDQNJobCfg"
            raise BadConfigError(Problem("JOB", "is missing", hint))
        return submit(self, split_words(self.words))


def submit(given: SendOptions, jobs: Sequence[Sequence[str]]) -> int:
    made = [make_job(words, COMMANDS) for words in jobs]
    clusters = _clusters(given, is_one_enough=len(made) == 1)
    given.request()  # what is wrong with it is said before files are read
    folder = given.working_dir.expanduser().resolve()
    package = pack_folder(folder, describe_origin(folder))
    for text in (*package.notes, f"shipping {package.about}"):
        note(text)
    return asyncio.run(_send(given, made, clusters, [package, pack_this_package()]))


def _clusters(given: SendOptions, is_one_enough: bool) -> list[KnownCluster]:
    file = given.config_file or default_cluster_file()
    if given.config_file and not file.is_file():
        raise BadConfigError(Problem(f"--config_file {file}", "there is no such file"))
    return choose_clusters(given.cluster, given.address, file, not is_one_enough)


async def _send(
    given: SendOptions,
    jobs: Sequence[Job],
    clusters: Sequence[KnownCluster],
    packages: Sequence[CodePackage],
) -> int:
    # Clusters that are named have to answer; of all that are known, one may be gone for long.
    note_silent = None if given.cluster or given.address else note
    async with connected(clusters, given, note_silent) as apis:
        check_versions(apis, any(job.is_own for job in jobs), note)
        printer = JobPrinter(given.format, len(jobs) > 1)
        dispatch = Dispatch([*apis], given, packages, printer)
        try:
            if given.no_wait:
                return await _send_all(dispatch, jobs, given.format)
            ended = await dispatch.run(jobs)
        except asyncio.CancelledError:  # the first Ctrl-C
            return await _leave(dispatch, given.on_interrupt)
    if given.format != "table" or len(ended) > 1:
        _print_jobs(ended, given.format)
    return next((job.code for job in ended if job.code), 0)


async def _send_all(dispatch: Dispatch, jobs: Sequence[Job], form: str) -> int:
    try:
        await dispatch.send(jobs)
    except DitkRayError as error:
        note(f"error: {error}\n{len(dispatch.sent)} of {len(jobs)} jobs were sent")
        # A job whose answer was lost might run twice if it were sent again as a new one.
        doubtful = dispatch.running.keys() - dispatch.sent.keys()
        for job_id in doubtful if isinstance(error, ClusterUnreachableError) else ():
            api = dispatch.running[job_id][0]
            what = f"{job_id} may have been started on {api.cluster.name}: check before you send it"
            note(f"{what} again\n{_what_next(job_id, api)}")
        return 1
    finally:
        sent = [(job.id, api.cluster) for api, job in dispatch.sent.values()]
        if form == "table":
            sys.stdout.writelines(f"{job_id}\n" for job_id, _ in sent)
        else:
            rows = [
                {"id": one, "cluster": at.name, "address": at.shown_address} for one, at in sent
            ]
            print_value(rows, form)
    return 0


async def _leave(dispatch: Dispatch, on_interrupt: str) -> int:
    for api, job in dispatch.running.values():
        if on_interrupt == "stop":
            await _stop(api, job.id)
        else:
            note(f"\n{job.id} keeps running on {api.cluster.name}\n{_what_next(job.id, api)}")
    for job in dispatch.waiting:
        note(f"{job} was not sent")
    return 130


async def _stop(api: JobApi, job_id: str) -> None:
    note(f"\n{job_id} is being stopped (Ctrl-C again exits at once)")
    try:
        # What was just asked for may begin a moment later.
        for _ in range(_TRIES_TO_FIND):
            state = await api.stop(job_id)
            if state is not None:
                break
            await asyncio.sleep(1)
        note(f"{job_id} {state.status.lower()}" if state else f"{job_id} had not started")
    except DitkRayError as error:
        note(f"{job_id} could not be stopped: {error}\n{_what_next(job_id, api)}")


def _what_next(job_id: str, api: JobApi) -> str:
    where = api.cluster.flag
    return (
        f"    follow it: ditk-ray submit --follow {job_id} {where}\n"
        f"    stop it:   ditk-ray submit --stop {job_id} {where}"
    )


class JobPrinter:
    """Prints logs as they come: of one job as they are, of several line by line with the job.

    With a result that a program reads from stdout, the logs go to stderr.
    """

    def __init__(self, form: str, has_several: bool) -> None:
        self._out = _log_stream(form)
        self._has_several = has_several
        self._lines: defaultdict[str, LineBuffer] = defaultdict(LineBuffer)

    def sent(self, job: Job, cluster: KnownCluster) -> None:
        note(f"{job.id} runs on {cluster}: {job}")

    def printed(self, job: Job, cluster: KnownCluster, text: str) -> None:
        if not self._has_several:
            print(text, end="", file=self._out, flush=True)
            return
        self._print(job.id, cluster, self._lines[job.id].take(text))

    def ended(self, state: JobState) -> None:
        if state.cluster:
            self._print(state.id, state.cluster, self._lines[state.id].close())
        took = f" after {show_seconds(state.seconds)}" if state.seconds else ""
        # Ray repeats the end of the log there, which has been seen.
        reason = state.message.partition(", last available logs")[0].strip()
        why = f": {reason}" if reason and state.status is not JobStatus.SUCCEEDED else ""
        note(f"{_standing(state)}{took}{why}")
        if state.status is JobStatus.LOST and state.cluster:
            how = f"ditk-ray submit --follow {state.id} {state.cluster.flag}"
            note(f"    when the cluster is back: {how}; if it is gone, submit the job again")

    def gave_up(self, cluster: KnownCluster, why: str) -> None:
        note(f"{cluster.name} gets no more jobs: {why}")

    def _print(self, job_id: str, cluster: KnownCluster, lines: Iterable[str]) -> None:
        for line in lines:
            print(f"[{job_id} {cluster.name}] {line}", file=self._out, flush=True)


def _log_stream(form: str) -> IO[str]:
    return sys.stdout if form == "table" else sys.stderr


def _standing(job: JobState) -> str:
    return f"{job.id} {job.status.lower()}{f' on {job.cluster.name}' if job.cluster else ''}"


async def _list_all(given: Submit, clusters: Sequence[KnownCluster]) -> int:
    async with connected(clusters, given, note) as apis:
        jobs = [job for api in apis for job in await api.jobs()]
    _print_jobs(jobs, given.format)
    if not jobs:
        note(f"no jobs on {', '.join(cluster.name for cluster in clusters)}")
    return 0


async def _follow_one(given: Submit, clusters: Sequence[KnownCluster]) -> int:
    job_id = given.follow or ""
    show = partial(print, end="", file=_log_stream(given.format), flush=True)
    async with connected(clusters, given, note) as apis:
        api = await _holder(apis, job_id)
        job = await follow_job(api, job_id, show, given.lost_after)
    note(_standing(job))
    if given.format != "table":
        print_value(_as_dict(job), given.format)
    return job.code


async def _stop_some(given: Submit, clusters: Sequence[KnownCluster]) -> int:
    """End jobs, and return when they have ended; none is touched if one is unknown."""
    async with connected(clusters, given, note) as apis:
        found = [(await _holder(apis, job_id), job_id) for job_id in given.stop]
        ended = [job for api, job_id in found if (job := await api.stop(job_id))]
    for job in ended:
        note(_standing(job))
    if given.format != "table":
        _print_jobs(ended, given.format)
    return 0


async def _holder(apis: Iterable[JobApi], job_id: str) -> JobApi:
    known: list[str] = []
    for api in apis:
        if await api.job(job_id) is not None:
            return api
        known += [job.id for job in await api.jobs()]
    hint = did_you_mean(job_id, known) or "see `ditk-ray submit --list`"
    raise BadConfigError(Problem(f"ID {job_id}", "no cluster has such a job", hint))


def _print_jobs(jobs: Sequence[JobState], form: str) -> None:
    items = [_as_dict(job) for job in jobs]
    if form == "table":
        for item in items:
            item["job"] = item["id"]
            item["took"] = item["seconds"] and show_seconds(item["seconds"])
            item["command"] = textwrap.shorten(item["command"], _COMMAND_WIDTH, placeholder=" ...")
    keys = ["cluster", "job", "status", "exit_code", "started", "took", "command"]
    print_items(items, keys, form)


def _as_dict(job: JobState) -> dict[str, Any]:
    started = datetime.fromtimestamp(job.started, UTC) if job.started is not None else None
    return {
        "id": job.id,
        "command": job.entrypoint,
        "cluster": job.cluster.name if job.cluster else None,
        "address": job.cluster.shown_address if job.cluster else None,
        "status": str(job.status),
        "exit_code": job.exit_code,
        "started": started and started.isoformat(timespec="seconds"),
        "seconds": job.seconds,
        "message": job.message or None,
        "metadata": dict(job.metadata or {}),
    }
