"""The job API of one Ray cluster, as its dashboard offers it over HTTP.

Ray's own client is not used: it has no time-outs, and the environment variable RAY_ADDRESS
overrides the address that it is given, which would send all jobs to one cluster.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import ssl
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from importlib.metadata import version
from ipaddress import ip_address
from typing import Any
from urllib.parse import quote, urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp

from ditk_ray.errors import ClusterUnreachableError, JobRefusedError
from ditk_ray.provenance.secrets import mask_text
from ditk_ray.submit.clusters import KnownCluster, token_file, token_of
from ditk_ray.submit.code import CodePackage
from ditk_ray.submit.jobs import JobState, SubmitOptions

_OLDEST_RAY = "2.60"
_BRIEF = aiohttp.ClientTimeout(total=30.0, sock_connect=5.0)
_LONG = aiohttp.ClientTimeout(total=600.0, sock_connect=5.0)
_HEARTBEAT_SECONDS = 10.0
_POLL_SECONDS = 0.5
_GATEWAY_ERRORS = (502, 503, 504)


class JobApi:
    """What can be asked of a cluster, in one event loop; every request has its limit of time.

    Where a cluster does not answer, ClusterUnreachableError is raised; where it refuses,
    JobRefusedError.
    """

    def __init__(self, cluster: KnownCluster, trusted: ssl.SSLContext | bool = True) -> None:
        self.cluster = cluster
        token = token_of(cluster.name)
        self._has_token = token is not None
        self._session = aiohttp.ClientSession(
            headers={"Authorization": f"Bearer {token}"} if token else {},
            timeout=_BRIEF,
            connector=aiohttp.TCPConnector(ssl=trusted),
            proxy=proxy_to(cluster.address),
        )

    async def close(self) -> None:
        await self._session.close()

    async def ray_version(self) -> str:
        """Return the version of the cluster's Ray, which proves that it is one."""
        try:
            answer = await self._ask("GET", "/api/version")
            return str(answer["ray_version"])
        except (JobRefusedError, KeyError, TypeError, ValueError) as error:
            raise ClusterUnreachableError(
                f"what answers at {self.cluster.shown_address} is not Ray's dashboard\n"
                "the address of a cluster is that of its dashboard, such as http://HOST:8265"
            ) from error

    async def jobs(self) -> list[JobState]:
        """Return the jobs that were submitted to the cluster, those begun last first."""
        found = [JobState.of(self.cluster, one) for one in await self._answer("/api/jobs/")]
        submitted = [job for job in found if job.id]
        return sorted(submitted, key=lambda job: job.started or 0.0, reverse=True)

    async def job(self, job_id: str) -> JobState | None:
        """Return the state of a job, or None if the cluster does not know it."""
        try:
            return JobState.of(self.cluster, await self._answer(_path_of(job_id)))
        except JobRefusedError as error:
            if error.status == 404:
                return None
            raise

    async def submit(self, job_id: str, request: dict[str, Any]) -> None:
        """Start a job, once: asked again with the same id, the cluster starts no other."""
        try:
            await self._ask("POST", "/api/jobs/", json={**request, "submission_id": job_id})
        except (ClusterUnreachableError, JobRefusedError):
            # The answer may have been lost, or this was asked before.
            if await self.job(job_id) is None:
                raise

    async def stop(self, job_id: str) -> JobState | None:
        """End a job and wait until it has ended; None if the cluster does not know it."""
        state = await self.job(job_id)
        if state is not None and not state.status.is_final:
            await self._ask("POST", f"{_path_of(job_id)}/stop")
        while state is not None and not state.status.is_final:
            await asyncio.sleep(_POLL_SECONDS)
            state = await self.job(job_id)
        return state

    async def log(self, job_id: str) -> str:
        answer = await self._answer(f"{_path_of(job_id)}/logs", timeout=_LONG)
        return str(answer["logs"])

    async def tail(self, job_id: str) -> AsyncIterator[str]:
        """Yield a job's output from its beginning until the stream ends, which may be any time."""
        url = f"{self.cluster.address}{_path_of(job_id)}/logs/tail"
        try:
            async with self._session.ws_connect(
                url, heartbeat=_HEARTBEAT_SECONDS, max_msg_size=0
            ) as stream:
                async for message in stream:
                    if message.type is aiohttp.WSMsgType.TEXT:
                        yield message.data
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise self._unreachable(error) from error

    async def ensure_package(self, package: CodePackage) -> None:
        """Send a package of code, unless the cluster has it; to be called before each job.

        Asking for it keeps the cluster from removing it for ten minutes.
        """
        path = f"/api/packages/gcs/{package.name}"
        try:
            await self._ask("GET", path)
        except JobRefusedError as error:
            if error.status != 404:
                raise
            await self._ask("PUT", path, data=package.data, timeout=_LONG)

    async def _answer(self, path: str, **options: Any) -> Any:
        answer = await self._ask("GET", path, **options)
        if answer is None:  # such as a page to log in
            raise self._unreachable(OSError("its answer is not JSON"))
        return answer

    async def _ask(self, method: str, path: str, **options: Any) -> Any:
        url = f"{self.cluster.address}{path}"
        try:
            async with self._session.request(method, url, **options) as answer:
                if answer.status in (401, 403):
                    what = "does not accept the token" if self._has_token else "requires a token"
                    raise ClusterUnreachableError(
                        f"the cluster {self.cluster} {what} (HTTP {answer.status})\n"
                        f"put it into {token_file(self.cluster.name)}, RAY_AUTH_TOKEN, the file "
                        "that RAY_AUTH_TOKEN_PATH names, or ~/.ray/auth_token"
                    )
                if answer.status in _GATEWAY_ERRORS:
                    raise self._unreachable(OSError(f"HTTP {answer.status} {answer.reason}"))
                if answer.status != 200:
                    raise JobRefusedError(_reason(await answer.text()), answer.status)
                is_json = answer.content_type == "application/json"
                return await answer.json() if is_json else None
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise self._unreachable(error) from error

    def _unreachable(self, error: Exception) -> ClusterUnreachableError:
        if isinstance(error, aiohttp.ClientConnectorCertificateError):
            hint = "give the certificate that signed its own with --ca_cert FILE"
            what = f"the certificate of {self.cluster} is not trusted: {error.certificate_error}"
            return ClusterUnreachableError(f"{what}\n{hint}")
        why = mask_text(str(error)) or type(error).__name__
        if isinstance(error, TimeoutError):
            why = "timed out"
        elif isinstance(error, aiohttp.ClientConnectorError) and error.os_error.errno:
            why = os.strerror(error.os_error.errno)
        return ClusterUnreachableError(
            f"cannot reach cluster {self.cluster}: {why}\n"
            "is the address right, the cluster up, and its port forwarded to here?"
        )


def _path_of(job_id: str) -> str:
    return f"/api/jobs/{quote(job_id, safe='')}"


def proxy_to(address: str) -> str | None:
    """Return the proxy that the environment names for an address; no passwords are looked up."""
    parts = urlsplit(address)
    host = (parts.hostname or "").rstrip(".")
    # A proxy has no use for a port that is forwarded to here, and must not see the token.
    with contextlib.suppress(ValueError):
        if host == "localhost" or ip_address(host).is_loopback:
            return None
    is_direct = proxy_bypass(parts.netloc.rpartition("@")[2])
    return None if is_direct else getproxies().get(parts.scheme)


def _reason(text: str) -> str:
    return text.strip().rpartition("\n")[2].strip()[:500] or "it gave no reason"


@contextlib.asynccontextmanager
async def connected(
    clusters: Sequence[KnownCluster],
    options: SubmitOptions,
    report: Callable[[str], None] | None = None,
) -> AsyncIterator[dict[JobApi, str]]:
    """Hold connections to all clusters, with the version of Ray that each has.

    Raises ClusterUnreachableError with every cluster that does not answer, within seconds. With
    `report`, that is called with those instead, as long as any other answers.
    """
    async with contextlib.AsyncExitStack() as stack:
        trusted = options.trusted()
        apis = []
        for cluster in clusters:
            apis.append(JobApi(cluster, trusted))
            stack.push_async_callback(apis[-1].close)
        answers = await asyncio.gather(*(api.ray_version() for api in apis), return_exceptions=True)
        found: dict[JobApi, str] = {}
        failures: list[str] = []
        for api, answer in zip(apis, answers, strict=True):
            if isinstance(answer, str):
                found[api] = answer
            elif isinstance(answer, ClusterUnreachableError):
                failures.append(str(answer))
            else:
                raise answer
        if failures and found and report is not None:
            report("\n".join(failures))
        elif failures:
            raise ClusterUnreachableError("\n".join(failures))
        yield found


def check_versions(
    found: Mapping[JobApi, str], runs_ditk_ray: bool, warn: Callable[[str], None]
) -> None:
    """Refuse a Ray that is too old for ditk_ray, if that is to run there; warn if it differs."""
    here = version("ray")
    for api, there in found.items():
        text = f"the cluster {api.cluster} has Ray {there}"
        if runs_ditk_ray and _minor(there) < _minor(_OLDEST_RAY):
            hint = f"ditk-ray needs {_OLDEST_RAY} or later there; other programs can be sent to it"
            raise ClusterUnreachableError(f"{text}\n{hint}")
        if _minor(there) != _minor(here):
            warn(f"{text}; here it is {here}")


def _minor(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", text)[:2])
