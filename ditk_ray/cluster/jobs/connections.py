"""Being connected to the job APIs of clusters, each of which is known to answer."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Callable, Sequence
from importlib.metadata import version

from ditk_ray.cluster.jobs.cluster_file import KnownCluster
from ditk_ray.cluster.jobs.job_api import JobApi, Trust
from ditk_ray.errors import ClusterUnreachableError

OLDEST_RAY = "2.60"
"""What ditk_ray itself needs where it runs."""


@contextlib.asynccontextmanager
async def connected(
    clusters: Sequence[KnownCluster], trust: Trust, tell: Callable[[str], None] | None = None
) -> AsyncIterator[dict[JobApi, str]]:
    """Hold connections to all clusters, with the version of Ray that each has.

    Raises ClusterUnreachableError with every cluster that does not answer, within seconds. With
    `tell`, that is called with those instead, as long as any other answers.
    """
    async with contextlib.AsyncExitStack() as stack:
        apis = [await stack.enter_async_context(JobApi(one, trust)) for one in clusters]
        answers = await asyncio.gather(*(api.ray_version() for api in apis), return_exceptions=True)
        found: dict[JobApi, str] = {}
        failures: list[str] = []
        for api, answer in zip(apis, answers, strict=True):
            if isinstance(answer, ClusterUnreachableError):
                failures.append(str(answer))
            elif isinstance(answer, BaseException):
                raise answer
            else:
                found[api] = answer
        if failures and found and tell is not None:
            tell("\n".join(failures))
        elif failures:
            raise ClusterUnreachableError("\n".join(failures))
        yield found


def check_versions(
    found: dict[JobApi, str], runs_ditk_ray: bool, warn: Callable[[str], None]
) -> None:
    """Refuse clusters whose Ray is too old for ditk_ray, if that is what is to run there.

    Of others that differ from the Ray of this machine the user is told.
    """
    here = version("ray")
    too_old: list[str] = []
    for api, there in found.items():
        if runs_ditk_ray and _numbers(there) < _numbers(OLDEST_RAY):
            too_old.append(f"the cluster {api.cluster} has Ray {there}")
        elif _numbers(there)[:2] != _numbers(here)[:2]:
            warn(f"the cluster {api.cluster} has Ray {there}; here it is {here}")
    if too_old:
        hint = f"ditk-ray needs {OLDEST_RAY} or later there; other programs can be sent to it"
        raise ClusterUnreachableError("\n".join([*too_old, hint]))


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", text))
