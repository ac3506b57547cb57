"""The job API of one Ray cluster, as its dashboard offers it over HTTP.

Ray's own client is not used: it has no time-outs, and the environment variable RAY_ADDRESS
overrides the address that it is given, which would send all jobs to one cluster.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import quote, urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp

from ditk_ray.cluster.jobs.cluster_file import KnownCluster
from ditk_ray.cluster.jobs.code_package import CodePackage
from ditk_ray.cluster.jobs.job_state import JobState, job_state
from ditk_ray.cluster.jobs.tokens import token_file, token_of
from ditk_ray.errors import BadConfigError, ClusterUnreachableError, JobRefusedError, Problem

CONNECT_SECONDS = 5.0
ANSWER_SECONDS = 30.0
_UPLOAD_SECONDS = 600.0
_HEARTBEAT_SECONDS = 10.0
_PASSING = (502, 503, 504)
"""What stands between us and a cluster answers so while that is away."""


@dataclass(frozen=True)
class Trust:
    """Whom to believe that it is the cluster, where its address is https."""

    ca_cert: Path | None = None
    is_insecure: bool = False

    def context(self) -> ssl.SSLContext | bool:
        """Return it as aiohttp wants it; BadConfigError if the file is no certificate."""
        if self.is_insecure:
            return False
        if self.ca_cert is None:
            return True
        try:
            return ssl.create_default_context(cafile=str(self.ca_cert))
        except OSError as error:  # ssl's own errors among them
            where = f"--ca_cert {self.ca_cert}"
            raise BadConfigError(Problem(where, f"cannot be used: {error}")) from error


class JobApi:
    """What can be asked of a cluster; every request has its limit of time.

    To be used as a context manager, in one event loop. Whatever cannot be had because the
    cluster does not answer raises ClusterUnreachableError; what the cluster refuses,
    JobRefusedError.
    """

    def __init__(self, cluster: KnownCluster, trust: Trust | None = None) -> None:
        self.cluster = cluster
        token = token_of(cluster.name)
        self._has_token = token is not None
        self._session = aiohttp.ClientSession(
            headers=_shown(token) if token else {},
            timeout=aiohttp.ClientTimeout(total=ANSWER_SECONDS, sock_connect=CONNECT_SECONDS),
            connector=aiohttp.TCPConnector(ssl=(trust or Trust()).context()),
            proxy=_proxy_to(cluster.address),
        )

    async def __aenter__(self) -> JobApi:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._session.close()

    async def ray_version(self) -> str:
        """Return the version of the cluster's Ray, which proves that it is one."""
        try:
            answer = await self._ask("GET", "/api/version")
            return str(answer["ray_version"])
        except (JobRefusedError, KeyError, TypeError, ValueError) as error:
            raise ClusterUnreachableError(
                f"what answers at {self.cluster.address} is not Ray's dashboard\n"
                "the address of a cluster is that of its dashboard, such as http://HOST:8265"
            ) from error

    async def jobs(self) -> list[JobState]:
        """Return the jobs that were submitted to the cluster, those begun last first."""
        found = [job_state(one) for one in await self._told("/api/jobs/")]
        submitted = [job for job in found if job.id]
        return sorted(submitted, key=lambda job: job.started or 0.0, reverse=True)

    async def job(self, job_id: str) -> JobState | None:
        """Return how a job stands, or None if the cluster does not know it."""
        try:
            return job_state(await self._told(_path_of(job_id)))
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

    async def stop(self, job_id: str) -> None:
        """Ask a job to end, as SIGTERM does; the cluster kills it some seconds later."""
        await self._ask("POST", f"{_path_of(job_id)}/stop")

    async def log(self, job_id: str) -> str:
        """Return all that a job has printed."""
        limit = aiohttp.ClientTimeout(total=_UPLOAD_SECONDS, sock_connect=CONNECT_SECONDS)
        answer = await self._told(f"{_path_of(job_id)}/logs", timeout=limit)
        return str(answer["logs"])

    async def tail(self, job_id: str) -> AsyncIterator[str]:
        """Yield what a job has printed and prints, from its beginning, until the stream ends.

        It may end at any time: that says nothing about the job.
        """
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
        """Send a package of code, unless the cluster has it.

        Asking for it keeps the cluster from removing it for ten minutes; so it is to be
        called right before each job that needs the package.
        """
        path = f"/api/packages/gcs/{package.name}"
        try:
            await self._ask("GET", path)
        except JobRefusedError as error:
            if error.status != 404:
                raise
            limit = aiohttp.ClientTimeout(total=_UPLOAD_SECONDS, sock_connect=CONNECT_SECONDS)
            await self._ask("PUT", path, data=package.data, timeout=limit)

    async def _told(self, path: str, **options: Any) -> Any:
        """Return what is told about jobs; what is no JSON, a page to log in, is no answer."""
        answer = await self._ask("GET", path, **options)
        if answer is None:
            raise self._unreachable(OSError("it answers with something else than JSON"))
        return answer

    async def _ask(self, method: str, path: str, **options: Any) -> Any:
        """Return the answer's JSON, or None if it is none."""
        url = f"{self.cluster.address}{path}"
        try:
            async with self._session.request(method, url, **options) as answer:
                if answer.status in (401, 403):
                    raise self._unwelcome(answer.status)
                if answer.status in _PASSING:
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
        return ClusterUnreachableError(
            f"nothing answers for the cluster {self.cluster}: {_why(error)}\n"
            "is the address right, the cluster up, and its port forwarded to here?"
        )

    def _unwelcome(self, status: int) -> ClusterUnreachableError:
        what = "refuses the token that it was shown" if self._has_token else "wants a token"
        return ClusterUnreachableError(
            f"the cluster {self.cluster} {what} (HTTP {status})\n"
            f"put it into {token_file(self.cluster.name)}, or into RAY_AUTH_TOKEN, the file that "
            "RAY_AUTH_TOKEN_PATH names, or ~/.ray/auth_token"
        )


def _path_of(job_id: str) -> str:
    return f"/api/jobs/{quote(job_id, safe='')}"


def _proxy_to(address: str) -> str | None:
    """Return the proxy that the environment names for an address; no passwords are looked up."""
    parts = urlsplit(address)
    # A port that is forwarded to here is nothing for a proxy, and neither is the token.
    if _is_this_machine(parts.hostname or "") or proxy_bypass(parts.netloc.rpartition("@")[2]):
        return None
    return getproxies().get(parts.scheme)


def _is_this_machine(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.rstrip(".") == "localhost"


def _shown(token: str) -> dict[str, str]:
    """Return the headers by which a cluster knows us."""
    return {aiohttp.hdrs.AUTHORIZATION: " ".join(("Bearer", token))}


def _why(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "it took too long"
    if isinstance(error, aiohttp.ClientConnectorError) and error.os_error.errno:
        return os.strerror(error.os_error.errno)
    return str(error) or type(error).__name__


def _reason(text: str) -> str:
    """Return the line of a traceback, which is what Ray answers with, that says why."""
    lines = [line.strip() for line in text.strip().splitlines() if line.strip()]
    return lines[-1][:500] if lines else "it gave no reason"
