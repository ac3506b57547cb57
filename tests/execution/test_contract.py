"""What holds of every executor: each test runs over all of them.

A new executor is one more `...Ground` class in `GROUNDS`.
"""

from __future__ import annotations

import json
import pickle
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ditk_ray.config.config_file import EntryCall
from ditk_ray.config.engine_config import EngineConfig, load_engine_config
from ditk_ray.config.options import KubeSettings
from ditk_ray.dijob.executor import DijobExecutor
from ditk_ray.dijob.jobs import heartbeat_name
from ditk_ray.dijob.template import read_template
from ditk_ray.execution.executor import (
    Ended,
    Evaluated,
    Event,
    Executor,
    Printed,
    Run,
    Started,
    follow,
)
from ditk_ray.execution.process import ProcessExecutor
from ditk_ray.execution.scripted import ScriptedExecutor, scripted
from ditk_ray.ray_cluster.command_process import CommandExecutor, CommandTask
from ditk_ray.trial.plan import SeedTask
from tests.kube.leftovers import left_in
from tests.kube.simulated import evaluation, said
from tests.kube.stand_in.cluster import StandInCluster
from tests.kube.stand_in.containers import Simulated
from tests.processes import PATIENCE, processes_in, wait_until
from tests.trial import experiments

TEMPLATE = Path(__file__).parents[1] / "dijob/templates/sweep.yaml"
GRACE = 5.0
"""In which a run that is stopped has to be gone, in seconds on a quiet machine."""


class Ground(ABC):
    """An executor, and tasks for it that do as they are told."""

    marks: tuple[Any, ...] = ()
    executor: Executor[Any]

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    @contextmanager
    def opened(cls, folder: Path, fixture: Callable[[str], Any]) -> Iterator[Ground]:
        """Hold what the executor needs; `fixture` returns those of pytest by name."""
        yield cls(folder)

    def task(self, name: str, **changes: Any) -> SeedTask:
        """Return a task: `three` evaluates so often, `fails` after one, `endless` never ends.

        `stubborn` does not end either, not when it is asked to, with a child that is like it.
        """
        call = EntryCall(self.entry(name), {})
        task = SeedTask(self.config(), call, self.folder / "attempt_0", trial=name, title=name)
        return replace(task, **changes)

    def config(self) -> EngineConfig:
        return EngineConfig({}, {})

    @abstractmethod
    def entry(self, name: str) -> Any:
        """Return what trains in such a task."""

    def numbers(self, events: list[Event]) -> list[int]:
        """Return the numbers of the evaluations in these events."""
        return [event.number for event in events if isinstance(event, Evaluated)]

    def log_of(self, task: Any, events: list[Event]) -> str:
        """Return all that a task has printed."""
        return str(task.log.read_text())

    def error_of(self, end: Ended, events: list[Event]) -> str:
        """Return the words by which a run has said why it failed."""
        return end.error

    @abstractmethod
    def left(self) -> list[Any]:
        """Return what is left of all runs."""


class ScriptedGround(Ground):
    executor = ScriptedExecutor()

    def entry(self, name: str) -> Any:
        return scripted({"three": three, "fails": fails}.get(name, endless))

    def left(self) -> list[Any]:
        return []


def rows() -> Iterator[Mapping[str, Any]]:
    number = 0
    while True:
        number += 1
        yield {"eval_value": float(number)}


def three(config: Any) -> Iterator[Mapping[str, Any]]:
    for _, row in zip(range(3), rows(), strict=False):
        yield row


def fails(config: Any) -> Iterator[Mapping[str, Any]]:
    yield next(rows())
    raise ValueError("no such luck")


def endless(config: Any) -> Iterator[Mapping[str, Any]]:
    yield from rows()


class ProcessGround(Ground):
    marks = (pytest.mark.engine,)

    @classmethod
    @contextmanager
    def opened(cls, folder: Path, fixture: Callable[[str], Any]) -> Iterator[Ground]:
        ground = cls(folder)
        ground.executor = ProcessExecutor(fixture("warm").key)
        yield ground

    def config(self) -> EngineConfig:
        return load_engine_config(experiments.CARTPOLE)

    def entry(self, name: str) -> Any:
        return getattr(experiments, f"{name}_evaluations")

    def left(self) -> list[Any]:
        return list(processes_in(self.folder))


class DijobGround(Ground):
    marks = (pytest.mark.kube, pytest.mark.ray)
    executor: DijobExecutor

    @classmethod
    @contextmanager
    def opened(cls, folder: Path, fixture: Callable[[str], Any]) -> Iterator[Ground]:
        from ditk_ray.ray_cluster.session import remote_ray  # imports Ray

        kube, namespace = fixture("kube"), fixture("namespace")
        ground = cls(folder, kube, namespace)
        with (
            StandInCluster(kube, namespace, folder / "stand_in", cls.played),
            remote_ray(fixture("ray_address")),
            ground.executor.serve(print),
        ):
            yield ground

    def __init__(self, folder: Path, kube: Any, namespace: str) -> None:
        super().__init__(folder)
        self._kube, self._namespace = kube, namespace
        self.executor = DijobExecutor(
            read_template(TEMPLATE),
            f"contract-{namespace}",
            KubeSettings(kube.kubeconfig("admin"), namespace=namespace),
            {},
            gateway=f"gateway-{namespace}",
        )

    def entry(self, name: str) -> Any:
        return "serial"

    def left(self) -> list[Any]:
        own = f"configmaps/{heartbeat_name(self.executor.sweep_key)}"  # the sweep's, not a run's
        return [item for item in left_in(self._kube, self._namespace) if item != own]

    @staticmethod
    def played(pod: Any) -> Simulated:
        """Print what a pod prints that is told by its name what to do."""
        job = str(pod["metadata"]["labels"]["diengine/job"])
        evaluations = [(0.1, evaluation(n)) for n in range(1, 4)]
        if "three" in job:
            return Simulated([*evaluations, (0.0, said(4, "end", returned={}))])
        if "fails" in job:
            error = said(2, "error", message="ValueError: no such luck", failure="bug")
            return Simulated([evaluations[0], (0.0, "ValueError: no such luck"), (0.0, error)])
        return Simulated((0.1, evaluation(n)) for n in range(1, 10_000))


class CommandGround(Ground):
    """Commands have no evaluations: they print, and their numbers stand for those."""

    @classmethod
    @contextmanager
    def opened(cls, folder: Path, fixture: Callable[[str], Any]) -> Iterator[Ground]:
        ground = cls(folder)
        with (folder / "held").open("w") as held:
            ground.executor = CommandExecutor(held.fileno())
            yield ground

    def task(self, name: str, **changes: Any) -> Any:
        return CommandTask([sys.executable, "-uc", self.entry(name)], str(self.folder), {})

    def entry(self, name: str) -> str:
        count = {"three": "range(1, 4)", "fails": "[1]"}.get(name, "itertools.count(1)")
        text = f"import itertools, time\nfor n in {count}:\n    print(n)\n    time.sleep(0.05)\n"
        if name == "stubborn":
            deaf = "import os, signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nos.fork()\n"
            return deaf + text
        return text + ('raise ValueError("no such luck")' if name == "fails" else "")

    def error_of(self, end: Ended, events: list[Event]) -> str:
        assert end.exit_code == 1
        return self.log_of(None, events)

    def numbers(self, events: list[Event]) -> list[int]:
        printed = b"".join(event.data for event in events if isinstance(event, Printed))
        return [int(line) for line in printed.split() if line.isdigit()]

    def log_of(self, task: Any, events: list[Event]) -> str:
        return b"".join(event.data for event in events if isinstance(event, Printed)).decode()

    def left(self) -> list[Any]:
        return list(processes_in(self.folder))


GROUNDS = (ScriptedGround, CommandGround, ProcessGround, DijobGround)


@pytest.fixture(params=[pytest.param(one, marks=one.marks, id=one.__name__) for one in GROUNDS])
def ground(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Ground]:
    with request.param.opened(tmp_path, request.getfixturevalue) as opened:
        yield opened


def all_events(ground: Ground, run: Run) -> list[Event]:
    return list(follow(ground.executor, run))


def until_evaluated(ground: Ground, run: Run) -> int:
    for event in follow(ground.executor, run):
        if numbers := ground.numbers([event]):
            return numbers[0]
    raise AssertionError("it ended without an evaluation")


def test_a_run_starts_reports_in_order_and_ends(ground):
    run = ground.executor.start(ground.task("three"))
    events = all_events(ground, run)
    started = events.index(Started())
    assert ground.numbers(events[:started]) == []
    assert ground.numbers(events) == [1, 2, 3]
    assert isinstance(events[-1], Ended)
    assert events[-1].kind == "finished"
    assert run.stop()
    wait_until(lambda: not ground.left(), 30, f"all to be gone: {ground.left()}")


def test_a_crash_is_an_error_after_what_was_reported_and_the_log_has_its_cause(ground):
    task = ground.task("fails")
    run = ground.executor.start(task)
    events = all_events(ground, run)
    end = events[-1]
    assert isinstance(end, Ended)
    assert (end.kind, end.failure) == ("failed", "bug")
    assert ground.numbers(events) == [1]
    assert "ValueError: no such luck" in ground.error_of(end, events)
    assert run.stop()
    assert "ValueError: no such luck" in ground.log_of(task, events)
    wait_until(lambda: not ground.left(), 30, f"all to be gone: {ground.left()}")


def test_nothing_follows_the_end(ground):
    run = ground.executor.start(ground.task("three"))
    all_events(ground, run)
    assert ground.executor.listen([run], 0.1) == []
    assert run.stop()
    assert run.stop()


@pytest.mark.parametrize("name", ["endless", "stubborn"])
def test_a_run_is_stopped_within_its_grace_and_leaves_nothing(ground, name):
    run = ground.executor.start(ground.task(name))
    until_evaluated(ground, run)
    begun = time.monotonic()
    assert run.stop()
    assert time.monotonic() - begun < GRACE * PATIENCE
    wait_until(lambda: not ground.left(), 30, f"all to be gone: {ground.left()}")


def test_several_runs_are_listened_to_at_once(ground):
    tasks = [ground.task("three", attempt=n, folder=ground.folder / f"a{n}") for n in (1, 2)]
    events: dict[Run, list[Event]] = {ground.executor.start(task): [] for task in tasks}
    while live := [run for run, had in events.items() if not had or not isinstance(had[-1], Ended)]:
        for run, event in ground.executor.listen(live, 0.5):
            events[run].append(event)
    assert [ground.numbers(had) for had in events.values()] == [[1, 2, 3]] * 2
    for run in events:
        run.stop()


def test_a_run_that_resumes_counts_on(ground):
    if not ground.executor.restores:  # nobody asks it to
        return
    run = ground.executor.start(ground.task("endless", evaluations=2))
    assert until_evaluated(ground, run) == 3
    run.stop()


def test_a_run_that_outlives_its_owner_is_found_again_by_its_handle(ground):
    task = ground.task("three")
    handle = ground.executor.handle_of(task)
    if not handle:
        assert ground.executor.adopt(task, {}, may_start=False) is None
        return
    first = ground.executor.start(task)
    until_evaluated(ground, first)
    elsewhere = pickle.loads(pickle.dumps(ground.executor))  # as another process has it
    again = elsewhere.adopt(task, json.loads(json.dumps(first.handle)), may_start=False)
    assert again is not None
    assert ground.numbers(list(follow(elsewhere, again))) == [1, 2, 3]
    again.stop()
    gone = ground.task("three", attempt=7)
    assert elsewhere.adopt(gone, elsewhere.handle_of(gone), may_start=False) is None
