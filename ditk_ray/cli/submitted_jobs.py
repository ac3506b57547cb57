"""`ditk-ray submit --list`, `--follow` and `--stop`: jobs that were sent before."""

from __future__ import annotations

import argparse
import asyncio
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from ditk_ray.cli.object_output import print_table, print_value, tell
from ditk_ray.config.nearest import did_you_mean
from ditk_ray.errors import BadConfigError, Problem

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ditk_ray.cluster.jobs.cluster_file import KnownCluster
    from ditk_ray.cluster.jobs.job_api import JobApi, Trust
    from ditk_ray.cluster.jobs.job_state import JobState

_COMMAND_WIDTH = 80
_POLL_SECONDS = 0.5


async def list_all(
    clusters: Sequence[KnownCluster], trust: Trust, given: argparse.Namespace
) -> int:
    """Print the jobs of all clusters."""
    from ditk_ray.cluster.jobs.connections import connected

    async with connected(clusters, trust, tell) as apis:
        jobs = [(api.cluster, job) for api in apis for job in await api.jobs()]
    if given.format != "table":
        print_value([_as_dict(*item) for item in jobs], given.format)
    elif jobs:
        headings = ["CLUSTER", "JOB", "STATUS", "STARTED", "TOOK", "COMMAND"]
        print_table([headings, *(_row(*item) for item in jobs)])
    else:
        tell(f"no jobs on {', '.join(cluster.name for cluster in clusters)}")
    return 0


async def follow_one(
    clusters: Sequence[KnownCluster], trust: Trust, given: argparse.Namespace
) -> int:
    """Show a job's log from its beginning to its end, and return its exit code."""
    from ditk_ray.cluster.jobs.connections import connected
    from ditk_ray.cluster.jobs.job_following import follow_job

    out = sys.stdout if given.format == "table" else sys.stderr

    def show(text: str) -> None:
        out.write(text)
        out.flush()

    async with connected(clusters, trust, tell) as apis:
        api = await _holder(apis, given.follow)
        state = await follow_job(api, given.follow, show, given.lost_after)
    tell(f"{given.follow} {state.status.lower()} on {api.cluster.name}")
    if given.format != "table":
        print_value(_as_dict(api.cluster, state), given.format)
    return state.code


async def stop_some(
    clusters: Sequence[KnownCluster], trust: Trust, given: argparse.Namespace
) -> int:
    """End jobs, and return when they have ended; none is touched if one is unknown."""
    from ditk_ray.cluster.jobs.connections import connected

    async with connected(clusters, trust, tell) as apis:
        found = [(await _holder(apis, job_id), job_id) for job_id in given.stop]
        states = [(api.cluster, await stop_job(api, job_id)) for api, job_id in found]
    known = [(cluster, state) for cluster, state in states if state]
    for cluster, state in known:
        tell(f"{state.id} {state.status.lower()} on {cluster.name}")
    if given.format != "table":
        print_value([_as_dict(*item) for item in known], given.format)
    return 0


async def stop_job(api: JobApi, job_id: str) -> JobState | None:
    """End a job and wait until it has; None if the cluster does not know it."""
    state = await api.job(job_id)
    if state is not None and not state.status.is_final:
        await api.stop(job_id)
    while state is not None and not state.status.is_final:
        await asyncio.sleep(_POLL_SECONDS)
        state = await api.job(job_id)
    return state


async def _holder(apis: Iterable[JobApi], job_id: str) -> JobApi:
    """Return the cluster that has a job; BadConfigError with names like it if none has."""
    known: list[str] = []
    for api in apis:
        if await api.job(job_id) is not None:
            return api
        known += [job.id for job in await api.jobs()]
    hint = did_you_mean(job_id, known) or "see `ditk-ray submit --list`"
    raise BadConfigError(Problem(f"ID {job_id}", "no cluster has such a job", hint))


def _row(cluster: KnownCluster, job: JobState) -> list[str]:
    from ditk_ray.config.quantities import show_seconds

    started = _time(job.started)
    took = show_seconds(job.seconds) if job.seconds is not None else "-"
    command = job.entrypoint
    if len(command) > _COMMAND_WIDTH:
        command = f"{command[: _COMMAND_WIDTH - 3]}..."
    return [cluster.name, job.id, job.status, started or "-", took, command]


def _as_dict(cluster: KnownCluster, job: JobState) -> dict[str, Any]:
    return {
        "id": job.id,
        "command": job.entrypoint,
        "cluster": cluster.name,
        "address": cluster.address,
        "status": str(job.status),
        "exit_code": job.exit_code,
        "started": _time(job.started),
        "seconds": job.seconds,
        "message": job.message or None,
        "metadata": dict(job.metadata or {}),
    }


def _time(seconds: float | None) -> str | None:
    if seconds is None:
        return None
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
