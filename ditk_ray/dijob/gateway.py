"""The one process of a sweep that talks to Kubernetes, for all of its trials.

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
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from ditk_ray.config.options import KubeSettings
from ditk_ray.dijob.manifests import JobManifests
from ditk_ray.dijob.sweep_jobs import Kept, SweepJobs
from ditk_ray.dijob.tracker import JobEvent
from ditk_ray.errors import KubeError, OutOfReachError
from ditk_ray.kube.connection import connect
from ditk_ray.kube.http_client import Backoff

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
    """How far a reader has come with a job's events, and in which life of the gateway."""

    life: str = ""
    after: int = 0


class KubeGateway:
    """What runs in the actor. It can be lost and started again: jobs are known by their names.

    Whoever asks then begins from a job's first event again.
    """

    def __init__(self, settings: KubeSettings, sweep_key: str, keep: Kept) -> None:
        self._life = uuid.uuid4().hex
        self._jobs = _insistent_jobs(settings, sweep_key, keep)
        self._threads = ThreadPoolExecutor(_MOST_JOBS)

    async def submit(self, order: JobManifests, log: Path, is_new: bool) -> bool:
        """Create a job and follow it, or follow the one that is there.

        With `is_new` false it is not created. Returns whether it is there.
        """
        return await self._in_thread(self._jobs.submit, order, log, is_new)

    async def events(self, job: str, log: Path, place: Place) -> tuple[Place, list[JobEvent]]:
        """Return what has happened to a job since, after waiting for it for a while."""
        after = place.after if place.life == self._life else 0
        await self._in_thread(self._jobs.follow, job, log)
        found = await self._in_thread(self._jobs.events, job, after, POLL_SECONDS)
        return Place(self._life, after + len(found)), found

    async def release(self, job: str, is_kept: bool) -> None:
        await self._in_thread(self._jobs.release, job, is_kept)

    async def close(self) -> list[str]:
        return await self._in_thread(self._jobs.close, CLOSE_SECONDS)

    async def _in_thread(self, function: Callable[..., Answer], *arguments: Any) -> Answer:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, function, *arguments)


class GatewayClient:
    """The gateway as a trial's actor sees it.

    A gateway that is lost is started again, unnoticed. One that is gone permanently went
    with its driver, whose trials live a moment longer: for them their jobs are out of reach,
    and what becomes of those is for the next driver to say.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self.is_gone = False
        """Whether the gateway was found to be gone permanently."""

    @cached_property
    def _gateway(self) -> Any:
        try:
            return ray.get_actor(self._name)
        except ValueError as error:  # Ray's way to say that there is none
            raise self._gone() from error

    def submit(self, order: JobManifests, log: Path, is_new: bool) -> bool:
        """Create a job, or find it; returns whether it is there.

        Raises a `KubeError`, or `OutOfReachError`.
        """
        try:
            with self._noticing():
                is_there: bool = ray.get(self._gateway.submit.remote(order, log, is_new))
        except ray.exceptions.RayTaskError as error:
            raise error.cause from None
        return is_there

    def ask(self, job: str, log: Path, place: Place) -> ray.ObjectRef:
        return self._gateway.events.remote(job, log, place)

    def answer(self, question: ray.ObjectRef) -> tuple[Place, list[JobEvent]]:
        """Return the answer to what was asked, which is there; raises `OutOfReachError`."""
        with self._noticing():
            answer: tuple[Place, list[JobEvent]] = ray.get(question)
        return answer

    def release(self, job: str, is_kept: bool) -> None:
        with contextlib.suppress(ray.exceptions.RayError, OutOfReachError), self._noticing():
            ray.get(self._gateway.release.remote(job, is_kept), timeout=5)

    @contextlib.contextmanager
    def _noticing(self) -> Iterator[None]:
        try:
            yield
        except ray.exceptions.RayActorError as error:
            raise self._gone() from error

    def _gone(self) -> OutOfReachError:
        self.is_gone = True
        return OutOfReachError("the Kubernetes gateway of this sweep is gone")


def _insistent_jobs(settings: KubeSettings, sweep_key: str, keep: Kept) -> SweepJobs:
    """Return the watch, however long that takes.

    Ray does not start an actor again whose beginning has failed. That the cluster can be
    watched was seen before the sweep began, so what keeps it from being watched now passes.
    """
    backoff = Backoff()
    kube = connect(settings, PATIENCE)
    while True:
        try:
            return SweepJobs(kube, sweep_key, keep)
        except KubeError as error:
            _log.warning("the jobs are watched when this is over: %s", error)
            time.sleep(backoff.pause())


@contextlib.contextmanager
def kube_gateway(
    name: str, settings: KubeSettings, sweep_key: str, keep: Kept, say: Callable[[str], None]
) -> Iterator[None]:
    """Have a gateway on this node, for as long as the sweep runs.

    `say` is called if jobs may be left in the cluster when it is over.
    """
    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    gateway: Any = (
        ray.remote(KubeGateway)
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
        if trouble := _close(gateway):
            say(f"{trouble}: `ditk-ray gc` shows and removes what is left")
        ray.kill(gateway)


def _close(gateway: Any) -> str:
    try:
        left: Sequence[str] = ray.get(gateway.close.remote(), timeout=CLOSE_SECONDS + 10)
    except ray.exceptions.RayError:
        return "some DIJobs may not have been deleted"
    return f"{len(left)} DIJobs could not be deleted" if left else ""
