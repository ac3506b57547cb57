"""Following a job to its end: its log, each line once, and its final status."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from dataclasses import replace
from typing import NoReturn

from ditk_ray.cluster.jobs.job_api import JobApi
from ditk_ray.cluster.jobs.job_state import JobState, JobStatus
from ditk_ray.errors import ClusterUnreachableError, DitkRayError, JobRefusedError

LOST_SECONDS = 60.0
"""A cluster that has not answered for so long counts as lost."""
_POLL_SECONDS = 1.0

Show = Callable[[str], None]


class LogPosition:
    """How much of a log has been shown, counted from its beginning."""

    def __init__(self, show: Show) -> None:
        self._show = show
        self._shown = 0

    def add(self, start: int, text: str) -> int:
        """Show what is new in a text that stands at `start`; return where it ends."""
        end = start + len(text)
        if end > self._shown:
            self._show(text[max(0, self._shown - start) :])
            self._shown = end
        return end


async def follow_job(
    api: JobApi, job_id: str, show: Show, lost_seconds: float = LOST_SECONDS
) -> JobState:
    """Show a job's log as it comes, and return how the job ended.

    A stream that is cut is opened again, and begins where it was cut: no line is lost, none
    comes twice. The end is what the job API says, not that of the stream. A job whose cluster
    does not answer for `lost_seconds`, or has forgotten it, ends as LOST.
    """
    position = LogPosition(show)
    stream = asyncio.create_task(_stream(api, job_id, position))
    end = asyncio.create_task(_wait_for_end(api, job_id, lost_seconds))
    try:
        # The stream goes on for ever, unless whoever shows the log fails.
        await asyncio.wait({stream, end}, return_when=asyncio.FIRST_COMPLETED)
        state = end.result() if end.done() else stream.result()
    finally:
        stream.cancel()
        end.cancel()
        await asyncio.gather(stream, end, return_exceptions=True)
    if state.status is not JobStatus.LOST:
        return await _with_whole_log(api, state, position)
    return state


async def _stream(api: JobApi, job_id: str, position: LogPosition) -> NoReturn:
    while True:
        start = 0
        with contextlib.suppress(ClusterUnreachableError):
            async for text in api.tail(job_id):
                start = position.add(start, text)
        await asyncio.sleep(_POLL_SECONDS)


async def _with_whole_log(api: JobApi, state: JobState, position: LogPosition) -> JobState:
    """Show what the stream had not brought when the job ended."""
    try:
        position.add(0, await api.log(state.id))
    except DitkRayError as error:
        note = f"the end of its log could not be read: {str(error).partition(chr(10))[0]}"
        return replace(state, message=f"{state.message}\n{note}".strip())
    return state


async def _wait_for_end(api: JobApi, job_id: str, lost_seconds: float) -> JobState:
    answered = time.monotonic()
    while True:
        try:
            state = await api.job(job_id)
            if state is None:
                return _lost(job_id, "the cluster does not know it any more: was it started anew?")
            if state.status.is_final:
                return state
            answered = time.monotonic()
        except (ClusterUnreachableError, JobRefusedError) as error:
            if time.monotonic() - answered > lost_seconds:
                return _lost(job_id, str(error).partition("\n")[0])
        await asyncio.sleep(_POLL_SECONDS)


def _lost(job_id: str, why: str) -> JobState:
    return JobState(job_id, JobStatus.LOST, message=why)
