"""Several jobs over several clusters, as these become free."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from ditk_ray.cluster.jobs.cluster_file import KnownCluster
from ditk_ray.cluster.jobs.job_api import JobApi
from ditk_ray.cluster.jobs.job_following import LOST_SECONDS, follow_job
from ditk_ray.cluster.jobs.job_request import JobRequest, JobSettings
from ditk_ray.cluster.jobs.job_state import JobState, JobStatus
from ditk_ray.errors import ClusterUnreachableError, JobRefusedError

_AGAIN_SECONDS = 1.0


@dataclass(frozen=True)
class JobOutcome:
    """How a job ended, and where it ran, if it got that far."""

    job: JobRequest
    cluster: KnownCluster | None
    state: JobState


class DispatchListener(Protocol):
    """Who is told what happens."""

    def sent(self, job: JobRequest, cluster: KnownCluster) -> None:
        """Hear that a cluster has taken a job."""

    def printed(self, job: JobRequest, cluster: KnownCluster, text: str) -> None:
        """Hear what a job has printed."""

    def ended(self, outcome: JobOutcome) -> None:
        """Hear that a job is over, or that nothing more is known of it."""

    def gave_up(self, cluster: KnownCluster, why: str) -> None:
        """Hear that a cluster gets no more jobs, since it does not answer."""


class Dispatch:
    """Sends jobs and follows them; each cluster has `at_once` of them at a time."""

    def __init__(
        self,
        apis: Sequence[JobApi],
        settings: JobSettings,
        listener: DispatchListener,
        at_once: int = 1,
        lost_seconds: float = LOST_SECONDS,
    ) -> None:
        self._apis = list(apis)  # those that are not lost
        self._settings = settings
        self._listener = listener
        self._at_once = at_once
        self._lost_seconds = lost_seconds
        self.waiting: deque[JobRequest] = deque()
        """Those that no cluster has got yet."""
        self.running: dict[str, tuple[JobApi, JobRequest]] = {}
        """Those that a cluster has, or may have, by their ids; still true after an interruption."""
        self.sent: dict[str, tuple[JobApi, JobRequest]] = {}
        """Those that were sent and are not followed."""
        self.outcomes: list[JobOutcome] = []

    async def run(self, jobs: Iterable[JobRequest]) -> list[JobOutcome]:
        """Run all jobs to their ends, and return how each ended, in their order.

        A cluster that is lost takes the jobs with it that ran there; the others go on with
        the rest. Being cancelled leaves the jobs of `running` as they are.
        """
        order = list(jobs)
        self.waiting.extend(order)
        while self.waiting and self._apis:  # a cluster that is lost may give a job back
            lanes = [self._serve(api) for _ in range(self._at_once) for api in self._apis]
            await _all_or_none([asyncio.create_task(lane) for lane in lanes])
        for job in self.waiting:
            state = JobState(job.id, JobStatus.UNSENT, message="no cluster was left to run it")
            self._note(JobOutcome(job, None, state))
        self.waiting.clear()
        return sorted(self.outcomes, key=lambda outcome: order.index(outcome.job))

    async def send(self, jobs: Iterable[JobRequest]) -> None:
        """Send all jobs at once, to each cluster in turn, and follow none.

        When one cannot be sent, those before it run, and are those of `sent`.
        """
        for number, job in enumerate(jobs):
            api = self._apis[number % len(self._apis)]
            await self._prepare(api)
            await self._submit(api, job)
            self.sent[job.id] = api, job

    async def _serve(self, api: JobApi) -> None:
        """Give one cluster one job after the other, for as long as it is there."""
        while self.waiting:
            job = self.waiting.popleft()
            try:
                await self._prepare(api)
            except (ClusterUnreachableError, JobRefusedError) as error:
                self.waiting.appendleft(job)  # it was not sent: another cluster may have it
                self._give_up(api, str(error))
                return
            state = await self._run_one(api, job)
            del self.running[job.id]
            self._note(JobOutcome(job, api.cluster, state))
            if state.status is JobStatus.LOST and not await _answers(api):
                self._give_up(api, state.message)
                return

    async def _run_one(self, api: JobApi, job: JobRequest) -> JobState:
        try:
            await self._submit(api, job)
        except JobRefusedError as error:
            return JobState(job.id, JobStatus.FAILED, message=f"the cluster refused it: {error}")
        except ClusterUnreachableError as error:
            why = str(error).partition("\n")[0]
            return JobState(job.id, JobStatus.LOST, message=f"it may have been started: {why}")

        def show(text: str) -> None:
            self._listener.printed(job, api.cluster, text)

        return await follow_job(api, job.id, show, self._lost_seconds)

    async def _prepare(self, api: JobApi) -> None:
        """Bring the code to a cluster."""
        for package in self._settings.packages:
            await self._patiently(partial(api.ensure_package, package))

    async def _submit(self, api: JobApi, job: JobRequest) -> None:
        """Start a job."""
        self.running[job.id] = api, job
        body = self._settings.body(job)
        await self._patiently(partial(api.submit, job.id, body))
        self._listener.sent(job, api.cluster)

    async def _patiently(self, ask: Callable[[], Awaitable[None]]) -> None:
        """Ask a cluster again for a while where no answer comes."""
        deadline = time.monotonic() + self._lost_seconds
        while True:
            try:
                return await ask()
            except ClusterUnreachableError:
                if time.monotonic() > deadline:
                    raise
            await asyncio.sleep(_AGAIN_SECONDS)

    def _give_up(self, api: JobApi, why: str) -> None:
        if api in self._apis:
            self._apis.remove(api)
            self._listener.gave_up(api.cluster, why)

    def _note(self, outcome: JobOutcome) -> None:
        self.outcomes.append(outcome)
        self._listener.ended(outcome)


async def _answers(api: JobApi) -> bool:
    try:
        await api.ray_version()
    except ClusterUnreachableError:
        return False
    return True


async def _all_or_none(tasks: Sequence[asyncio.Task[None]]) -> None:
    """Wait for all tasks; when one fails, or the waiting is cancelled, end the others."""
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
