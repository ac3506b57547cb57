"""The logs of all pods of one job, as they are or as they grow."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ditk_ray.config.nearest import did_you_mean
from ditk_ray.errors import BadConfigError, KubeError, KubeUnreachableError, Problem
from ditk_ray.kube.connection import Kube
from ditk_ray.kube.dijobs import phase_of, pod_names, spec_of
from ditk_ray.kube.labels import POD_JOB, POD_TASK
from ditk_ray.kube.live_job import LiveJob
from ditk_ray.kube.objects import Manifest
from ditk_ray.kube.pod_logs import PodLogReader
from ditk_ray.kube.pod_parts import each_task, task_name
from ditk_ray.kube.pod_reasons import has_ended, has_log, main_container, why_waiting

_SILENCE_SECONDS = 30.0
_LOOK_SECONDS = 0.2
_LATE_SECONDS = 1.0
"""For so long after a job's end news of its pods is waited for."""

_WAITING_LINES = 10_000


@dataclass(frozen=True)
class LogLine:
    """A line that a pod printed; `pod` is its name without the job's, as in `learner-0`."""

    pod: str
    text: str


def printed_lines(
    kube: Kube, job: Manifest, task: str | None, tail: int | None, tell: Callable[[str], None]
) -> Iterator[LogLine]:
    """Yield what the pods have printed so far, one pod after the other.

    `tell` is called with why a pod has no log. Raises KubeError when there are no pods, or,
    after all others, when the log of one is out of reach.
    """
    name = str(job["metadata"]["name"])
    pods = sorted(
        kube.pods.list(f"{POD_JOB}={name}" + (f",{POD_TASK}={task}" if task else "")),
        key=lambda pod: str(pod["metadata"]["name"]),
    )
    if not pods:
        raise KubeError(_no_pods(job))
    lost: KubeUnreachableError | None = None
    for pod in pods:
        if not has_log(pod):
            tell(why_waiting(pod) or f"pod {pod['metadata']['name']} has not begun")
            continue
        try:
            yield from _log_of(kube, name, pod, tail)
        except KubeUnreachableError as error:
            lost = lost or error
    if lost is not None:
        raise lost


def has_several_pods(job: Manifest, task: str | None) -> bool:
    """Tell whether lines of several pods have to be told apart."""
    return len(_expected(job, task)) > 1


def check_task(job: Manifest, task: str | None) -> None:
    """Raise BadConfigError for a task that the job does not have."""
    known = [task_name(each) for each, _ in each_task(spec_of(job))]
    if task is not None and task not in known:
        what = f"{job['metadata']['name']} has no task {task!r}; {did_you_mean(task, known)}"
        raise BadConfigError(Problem("--task", what))


class LogFollower:
    """Yields the lines of a job's pods while they come, until the job's end.

    `tell` is called with what keeps the job from starting.
    """

    def __init__(
        self, live: LiveJob, kube: Kube, tail: int | None, tell: Callable[[str], None]
    ) -> None:
        self._live = live
        self._kube = kube
        self._tail = tail
        self._tell = tell
        self._told: set[str] = set()
        self._lines: queue.Queue[LogLine] = queue.Queue(_WAITING_LINES)
        self._readers: dict[str, PodLogReader] = {}
        self._done: set[str] = set()
        self._closed = threading.Event()

    def lines(self, task: str | None) -> Iterator[LogLine]:
        """Yield the lines of a task's pods, or of all."""
        changed_at = time.monotonic()
        try:
            while True:
                if self._live.wait(0):
                    changed_at = time.monotonic()
                self._look_at_pods(task)
                is_drained = self._is_read() and self._lines.empty()
                is_quiet = time.monotonic() - changed_at > _LATE_SECONDS
                if self._live.is_over and is_drained and is_quiet:
                    return
                yield from self._ready_lines()
        finally:
            self._close()

    def _ready_lines(self) -> Iterator[LogLine]:
        with contextlib.suppress(queue.Empty):
            yield self._lines.get(timeout=_LOOK_SECONDS)
            while True:
                yield self._lines.get_nowait()

    def _look_at_pods(self, task: str | None) -> None:
        for pod in self._live.pods:
            if task in (None, (pod["metadata"].get("labels") or {}).get(POD_TASK)):
                self._look_at(pod)

    def _look_at(self, pod: Manifest) -> None:
        uid, is_gone = str(pod["metadata"]["uid"]), self._live.is_gone(pod)
        if uid not in self._readers and has_log(pod) and not is_gone:
            self._readers[uid] = self._reader(uid, pod)
            if has_ended(pod):
                self._readers[uid].container_ended()  # then its log is asked for once
            self._readers[uid].start()
        reader = self._readers.get(uid)
        if reader is None:
            self._say_why(pod)
            return
        if is_gone:
            reader.pod_gone()
        elif has_ended(pod):
            reader.container_ended()
        reader.tick()

    def _reader(self, uid: str, pod: Manifest) -> PodLogReader:
        title = _title(self._live.name, pod)
        return PodLogReader(
            self._kube.pods,
            pod["metadata"]["name"],
            main_container(pod),
            take=lambda text: self._put(LogLine(title, text)),
            done=lambda is_whole: self._done.add(uid),
            tail=self._tail,
        )

    def _put(self, line: LogLine) -> None:
        while not self._closed.is_set():
            with contextlib.suppress(queue.Full):
                self._lines.put(line, timeout=_LOOK_SECONDS)
                return

    def _say_why(self, pod: Manifest) -> None:
        why = None if self._live.is_gone(pod) else why_waiting(pod)
        if why and why not in self._told:
            self._told.add(why)
            self._tell(why)

    def _is_read(self) -> bool:
        return all(uid in self._done for uid in self._readers)

    def _close(self) -> None:
        self._closed.set()
        for reader in self._readers.values():
            reader.close()
        for reader in self._readers.values():
            reader.join(_SILENCE_SECONDS)


def _log_of(kube: Kube, job: str, pod: Manifest, tail: int | None) -> Iterator[LogLine]:
    query = {"container": main_container(pod)} | ({"tailLines": str(tail)} if tail else {})
    with kube.pods.log(pod["metadata"]["name"], query, _SILENCE_SECONDS) as stream:
        for line in stream:
            yield LogLine(_title(job, pod), line.decode(errors="replace"))


def _title(job: str, pod: Manifest) -> str:
    return str(pod["metadata"]["name"]).removeprefix(f"{job}-")


def _expected(job: Manifest, task: str | None) -> list[str]:
    tasks = [each for each, _ in each_task(spec_of(job)) if task in (None, task_name(each))]
    return pod_names({**job, "spec": {"tasks": tasks}})


def _no_pods(job: Manifest) -> str:
    name, phase = job["metadata"]["name"], phase_of(job) or "without a phase"
    policy = spec_of(job).get("cleanPodPolicy", "Running")
    hint = ""
    if phase in ("Succeeded", "Failed"):
        hint = f"\n    cleanPodPolicy is {policy}: the logs are gone with the pods"
    return f"the DIJob {name!r} is {phase} and has no pods{hint}"
