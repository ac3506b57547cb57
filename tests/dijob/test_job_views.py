"""Following a job's logs, which are read no faster than they are taken."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from ditk_ray.dijob import job_views
from ditk_ray.kube import pod_logs
from tests.processes import PATIENCE, wait_until

LINES = 5000


class StandInLog:
    """The log of a pod, which counts the lines that were read."""

    is_shut = False

    def __init__(self, count: int) -> None:
        self.read = 0
        self._count = count

    def __enter__(self) -> StandInLog:
        return self

    def __exit__(self, *raised: object) -> None:
        pass

    def __iter__(self) -> Iterator[bytes]:
        while self.read < self._count and not self.is_shut:
            self.read += 1
            yield f"2030-01-01T00:00:00.{self.read:09}Z {self.read}".encode()

    def shut(self) -> None:
        self.is_shut = True


class StandInKube:
    """A cluster with one job of one pod, whose log is there at once."""

    def __init__(self, lines: int) -> None:
        self.log = StandInLog(lines)
        self.phase = "Running"
        self.dijobs = SimpleNamespace(get=lambda name, patience: self.job)
        self.pods = SimpleNamespace(list=lambda labels, patience: [self.pod], log=self._open)
        self.events = SimpleNamespace(list=lambda **chosen: [])

    @property
    def job(self) -> dict[str, Any]:
        spec = {"tasks": [{"type": "none", "name": "serial"}]}
        metadata = {"name": "job", "uid": "1"}
        return {"metadata": metadata, "spec": spec, "status": {"phase": self.phase}}

    @property
    def pod(self) -> dict[str, Any]:
        ended = {"terminated": {"exitCode": 0, "startedAt": "2030-01-01T00:00:00Z"}}
        state = {"running": {}} if self.phase == "Running" else ended
        status = {"containerStatuses": [{"name": "di-container", "state": state}]}
        return {"metadata": {"name": "job-serial-0", "uid": "2"}, "status": status}

    def follow(self) -> Any:
        return job_views.followed_lines(self, self.job, None, None, lambda text: None)  # type: ignore[arg-type]

    def _open(self, name: str, query: Mapping[str, str], silence: float) -> StandInLog:
        return self.log


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_views, "_LOOK_SECONDS", 0.05)
    monkeypatch.setattr(pod_logs, "DRAIN_SECONDS", 0.5 * PATIENCE)
    monkeypatch.setattr(pod_logs, "GIVE_UP_SECONDS", 0.5 * PATIENCE)


def test_a_pod_that_prints_faster_than_its_lines_are_taken_is_read_no_further() -> None:
    kube = StandInKube(LINES)
    lines = kube.follow()
    assert next(lines) == "1"
    wait_until(lambda: kube.log.read > job_views._WAITING_LINES, 10, "the lines that are waiting")
    time.sleep(0.2)
    assert kube.log.read <= job_views._WAITING_LINES + 2
    lines.close()
    wait_until(lambda: kube.log.is_shut, 10, "the end of reading")


@pytest.mark.usefixtures("quick")
def test_no_line_of_a_job_that_has_ended_is_lost_however_late_it_is_taken() -> None:
    kube = StandInKube(LINES)
    lines = kube.follow()
    taken = [next(lines)]
    kube.phase = "Succeeded"
    for line in itertools.islice(lines, 3):
        time.sleep(0.8 * PATIENCE)
        taken.append(line)
    begun = time.monotonic()
    taken += lines
    assert taken == [str(number) for number in range(1, LINES + 1)]
    assert time.monotonic() - begun < 10 * PATIENCE
