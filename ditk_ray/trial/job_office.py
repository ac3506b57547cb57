"""The one process of a sweep that speaks to Kubernetes, for all of its trials.

Trials run in actors on any node; this actor runs beside the driver, where the kubeconfig
is. It holds one watch for all jobs, so that a trial costs the API server a few requests,
and the trials' actors need no Kubernetes client.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from ditk_ray.errors import KubeError, OutOfReachError
from ditk_ray.kube.backoff import Backoff
from ditk_ray.kube.connection import KubeSettings, connect
from ditk_ray.kube.job_events import JobEvent
from ditk_ray.kube.job_watch import JobWatch, Kept
from ditk_ray.kube.submission import JobOrder

POLL_SECONDS = 20.0
"""How long a question is held back that has no answer yet."""

PATIENCE = 360.0
"""How long an API server may be away, in seconds, before a trial that begins counts as lost.

In an hour that is no more often than lost trials are tried again."""

CLOSE_SECONDS = 60.0
"""How long a sweep waits at its end for its jobs to be deleted."""

_MOST_JOBS = 1000
"""How many questions may be open at once: one for each seed of each running trial."""


Answer = TypeVar("Answer")

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Place:
    """How far somebody has come with a job's events, and in which life of the office."""

    life: str = ""
    after: int = 0


class JobOffice:
    """What runs in the actor. It can be lost and started again: jobs are known by their names.

    Whoever asks then begins from a job's first event again.
    """

    def __init__(self, settings: KubeSettings, sweep_key: str, keep: Kept) -> None:
        self._life = uuid.uuid4().hex
        self._watch = _insistent_watch(settings, sweep_key, keep)
        self._threads = ThreadPoolExecutor(_MOST_JOBS)

    async def submit(self, order: JobOrder, log: Path, is_new: bool) -> bool:
        """Create a job and follow it, or follow the one that is there.

        With `is_new` false it is not created. Returns whether it is there.
        """
        return await self._in_thread(self._watch.submit, order, log, is_new)

    async def events(self, job: str, log: Path, place: Place) -> tuple[Place, list[JobEvent]]:
        """Return what has happened to a job since, after waiting for it for a while."""
        after = place.after if place.life == self._life else 0
        await self._in_thread(self._watch.follow, job, log)
        found = await self._in_thread(self._watch.events, job, after, POLL_SECONDS)
        return Place(self._life, after + len(found)), found

    async def release(self, job: str, is_kept: bool) -> None:
        """Follow a job no longer, and delete it unless it is kept; returns at once."""
        await self._in_thread(self._watch.release, job, is_kept)

    async def close(self) -> list[str]:
        """Delete what is left of the sweep and is not kept; return what is still there."""
        return await self._in_thread(self._watch.close, CLOSE_SECONDS)

    async def _in_thread(self, function: Callable[..., Answer], *arguments: Any) -> Answer:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, function, *arguments)


class OfficeDesk:
    """The office as a trial's actor sees it.

    An office that is lost is started again, and nobody notices. One that is gone for good went
    with its driver, whose trials live a moment longer: for them their jobs are out of reach,
    and what becomes of those is for the next driver to say.
    """

    def __init__(self, name: str) -> None:
        self._office = ray.get_actor(name)
        self.is_gone = False
        """Whether the office was found to be gone for good."""

    def submit(self, order: JobOrder, log: Path, is_new: bool) -> bool:
        """Create a job, or find it; returns whether it is there.

        Raises a `KubeError`, or `OutOfReachError`.
        """
        try:
            with self._noticing():
                is_there: bool = ray.get(self._office.submit.remote(order, log, is_new))
        except ray.exceptions.RayTaskError as error:
            raise error.cause from None
        return is_there

    def ask(self, job: str, log: Path, place: Place) -> ray.ObjectRef:
        """Ask for the events of a job; the answer is a place and the events."""
        return self._office.events.remote(job, log, place)

    def answer(self, question: ray.ObjectRef) -> tuple[Place, list[JobEvent]]:
        """Return the answer to what was asked, which is there; raises `OutOfReachError`."""
        with self._noticing():
            answer: tuple[Place, list[JobEvent]] = ray.get(question)
        return answer

    def release(self, job: str, is_kept: bool) -> None:
        """Say that a job is not needed any more."""
        with contextlib.suppress(ray.exceptions.RayError, OutOfReachError), self._noticing():
            ray.get(self._office.release.remote(job, is_kept), timeout=5)

    @contextlib.contextmanager
    def _noticing(self) -> Iterator[None]:
        try:
            yield
        except ray.exceptions.RayActorError as error:
            self.is_gone = True
            raise OutOfReachError("nobody speaks to Kubernetes any more") from error


def _insistent_watch(settings: KubeSettings, sweep_key: str, keep: Kept) -> JobWatch:
    """Return the watch, however long that takes.

    Ray does not start an actor again whose beginning has failed. That the cluster can be
    watched was seen before the sweep began, so what keeps it from being watched now passes.
    """
    backoff = Backoff()
    kube = connect(settings, PATIENCE)
    while True:
        try:
            return JobWatch(kube, sweep_key, keep)
        except KubeError as error:
            _log.warning("the jobs are watched when this is over: %s", error)
            time.sleep(backoff.pause())


@contextlib.contextmanager
def job_office(
    name: str, settings: KubeSettings, sweep_key: str, keep: Kept, say: Callable[[str], None]
) -> Iterator[None]:
    """Have an office on this node, for as long as the sweep runs.

    `say` is told if jobs may be left in the cluster when it is over.
    """
    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    office: Any = (
        ray.remote(JobOffice)
        .options(
            name=name,
            num_cpus=0,
            max_restarts=-1,
            max_task_retries=-1,
            max_concurrency=_MOST_JOBS,
            scheduling_strategy=here,
        )
        .remote(settings, sweep_key, keep)
    )
    try:
        yield
    finally:
        if trouble := _close(office):
            say(f"{trouble}: `ditk-ray gc` shows and removes what is left")
        ray.kill(office)


def _close(office: Any) -> str:
    """Have the office delete what is left; return what is wrong if something may stay."""
    try:
        left: Sequence[str] = ray.get(office.close.remote(), timeout=CLOSE_SECONDS + 10)
    except ray.exceptions.RayError:
        return "it is not known whether all DIJobs are deleted"
    return f"{len(left)} DIJobs could not be deleted" if left else ""
