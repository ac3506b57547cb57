"""Several jobs over several clusters, as these become free, each followed to its end."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NoReturn, Protocol

from ditk_ray.errors import ClusterUnreachableError, DitkRayError, JobRefusedError, first_line
from ditk_ray.submit.clusters import KnownCluster
from ditk_ray.submit.code import CodePackage
from ditk_ray.submit.job_api import JobApi
from ditk_ray.submit.jobs import Job, JobState, JobStatus, SubmitOptions

_POLL_SECONDS = 1.0

Show = Callable[[str], None]


class LogPosition:
    """How much of a log has been shown, counted from its beginning."""

    def __init__(self, show: Show) -> None:
        self._show = show
        self._shown = 0

    def add(self, start: int, text: str) -> int:
        """Show what is new in a text that begins at `start`; return where it ends."""
        end = start + len(text)
        if end > self._shown:
            self._show(text[max(0, self._shown - start) :])
            self._shown = end
        return end


async def follow_job(api: JobApi, job_id: str, show: Show, lost_seconds: float) -> JobState:
    """Show a job's log as it comes, and return how the job ended.

    A stream that is cut is opened again, and begins where it was cut: no line is lost, none
    comes twice. The end is what the job API says, not that of the stream. A job whose cluster
    does not answer for `lost_seconds` ends as LOST, one that it has forgotten as FAILED.
    """
    position = LogPosition(show)
    stream = asyncio.create_task(_stream(api, job_id, position))
    end = asyncio.create_task(_wait_for_end(api, job_id, lost_seconds))
    async with _ended_together([stream, end]):
        # The stream never ends, unless showing the log fails.
        await asyncio.wait({stream, end}, return_when=asyncio.FIRST_COMPLETED)
        state = end.result() if end.done() else stream.result()
    if state.status is JobStatus.LOST:
        return state
    try:
        position.add(0, await api.log(job_id))  # what the stream had not brought yet
    except DitkRayError as error:
        note = f"the end of its log could not be read: {first_line(error)}"
        return replace(state, message=f"{state.message}\n{note}".strip())
    return state


async def _stream(api: JobApi, job_id: str, position: LogPosition) -> NoReturn:
    while True:
        start = 0
        with contextlib.suppress(ClusterUnreachableError):
            async for text in api.tail(job_id):
                start = position.add(start, text)
        await asyncio.sleep(_POLL_SECONDS)


async def _wait_for_end(api: JobApi, job_id: str, lost_seconds: float) -> JobState:
    answered = time.monotonic()
    while True:
        try:
            state = await api.job(job_id)
            if state is None:
                why = "the cluster does not know it: was it restarted?"
                return JobState(job_id, JobStatus.FAILED, api.cluster, message=why)
            if state.status.is_final:
                return state
            answered = time.monotonic()
        except (ClusterUnreachableError, JobRefusedError) as error:
            if time.monotonic() - answered > lost_seconds:
                why = first_line(error)
                return JobState(job_id, JobStatus.LOST, api.cluster, message=why)
        await asyncio.sleep(_POLL_SECONDS)


@contextlib.asynccontextmanager
async def _ended_together(tasks: Sequence[asyncio.Task[Any]]) -> AsyncIterator[None]:
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class DispatchListener(Protocol):
    """Receives what happens; a cluster that does not answer is given up."""

    def sent(self, job: Job, cluster: KnownCluster) -> None: ...

    def printed(self, job: Job, cluster: KnownCluster, text: str) -> None: ...

    def ended(self, state: JobState) -> None: ...

    def gave_up(self, cluster: KnownCluster, why: str) -> None: ...


@dataclass
class Dispatch:
    """Sends jobs with their code, and follows them, a limited number per cluster at a time.

    `apis` are the clusters that are not lost, `waiting` the jobs that none has got yet, `running`
    those that one has, or may have, by their ids (also after an interruption), and `sent` those
    that are not followed.
    """

    apis: list[JobApi]
    options: SubmitOptions
    packages: Sequence[CodePackage]
    listener: DispatchListener
    waiting: deque[Job] = field(default_factory=deque)
    running: dict[str, tuple[JobApi, Job]] = field(default_factory=dict)
    sent: dict[str, tuple[JobApi, Job]] = field(default_factory=dict)
    ended: list[JobState] = field(default_factory=list)

    async def run(self, jobs: Iterable[Job]) -> list[JobState]:
        """Run all jobs to their ends, and return how each ended, in their order.

        A cluster that is lost takes the jobs with it that ran there; the others continue with
        the rest. Being cancelled leaves the jobs of `running` as they are.
        """
        self.waiting.extend(jobs)
        order = [job.id for job in self.waiting]
        while self.waiting and self.apis:  # a cluster that is lost may give a job back
            apis = self.apis * self.options.jobs_per_cluster
            lanes = [asyncio.create_task(self._serve(api)) for api in apis]
            async with _ended_together(lanes):
                await asyncio.gather(*lanes)
        for job in self.waiting:
            state = JobState(job.id, JobStatus.UNSENT, message="no cluster was left to run it")
            self._note(job, None, state)
        self.waiting.clear()
        return sorted(self.ended, key=lambda state: order.index(state.id))

    async def send(self, jobs: Iterable[Job]) -> None:
        """Send all jobs at once, to each cluster in turn, and follow none.

        When one cannot be sent, those before it run, and are those of `sent`.
        """
        for number, job in enumerate(jobs):
            api = self.apis[number % len(self.apis)]
            await self._prepare(api)
            await self._submit(api, job)
            self.sent[job.id] = api, job

    async def _serve(self, api: JobApi) -> None:
        while self.waiting:
            job = self.waiting.popleft()
            try:
                await self._prepare(api)
            except (ClusterUnreachableError, JobRefusedError) as error:
                self.waiting.appendleft(job)  # it was not sent: another cluster may have it
                return self._give_up(api, str(error))
            state = await self._run_one(api, job)
            del self.running[job.id]
            self._note(job, api.cluster, state)
            if state.status is JobStatus.LOST:
                return self._give_up(api, state.message)

    async def _run_one(self, api: JobApi, job: Job) -> JobState:
        try:
            await self._submit(api, job)
        except JobRefusedError as error:
            return JobState(job.id, JobStatus.FAILED, message=f"the cluster refused it: {error}")
        except ClusterUnreachableError as error:
            why = f"it may have been started: {first_line(error)}"
            return JobState(job.id, JobStatus.LOST, message=why)
        show = partial(self.listener.printed, job, api.cluster)
        return await follow_job(api, job.id, show, self.options.lost_after)

    async def _prepare(self, api: JobApi) -> None:
        for package in self.packages:
            await self._patiently(partial(api.ensure_package, package))

    async def _submit(self, api: JobApi, job: Job) -> None:
        self.running[job.id] = api, job
        body = self.options.body(job, self.packages)
        await self._patiently(partial(api.submit, job.id, body))
        self.listener.sent(job, api.cluster)

    async def _patiently(self, ask: Callable[[], Awaitable[None]]) -> None:
        """Ask a cluster again, until it counts as lost, while no answer comes."""
        deadline = time.monotonic() + self.options.lost_after
        while True:
            try:
                return await ask()
            except ClusterUnreachableError:
                if time.monotonic() > deadline:
                    raise
            await asyncio.sleep(_POLL_SECONDS)

    def _give_up(self, api: JobApi, why: str) -> None:
        if api in self.apis:
            self.apis.remove(api)
            self.listener.gave_up(api.cluster, why)

    def _note(self, job: Job, cluster: KnownCluster | None, state: JobState) -> None:
        self.ended.append(replace(state, cluster=cluster, entrypoint=str(job)))
        self.listener.ended(self.ended[-1])
