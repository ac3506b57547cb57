"""Acting on a sweep that runs: pause, continue, rank, cancel."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from ditk_ray import JobCfg
from ditk_ray.execution.scripted import scripted
from ditk_ray.record.record import SweepRecord, read_record, write_record
from ditk_ray.record.sweep_folder import Action, Request, ask
from ditk_ray.record.trial_folder import by_attempt, read_metrics
from ditk_ray.sweep.resume import read_earlier
from ditk_ray.sweep.trials import Ledger
from tests.processes import PATIENCE, processes_in, wait_until
from tests.trial import experiments

pytestmark = pytest.mark.ray


class Endless(JobCfg):
    config = experiments.CARTPOLE
    space: ClassVar[Any] = {"env.stop_value": 10**9, "policy.eval.evaluator.eval_freq": 40}
    num_samples = 2
    max_concurrent = 1


class Running:
    """A sweep in a thread of its own."""

    def __init__(self, sweep: Callable[..., Any], job: Any, folder: Path) -> None:
        self.folder = folder
        self._outcomes: list[Any] = []
        self._thread = threading.Thread(target=lambda: self._outcomes.append(sweep(job)))
        self._thread.start()

    def state(self, trial: str) -> str:
        if not (self.folder / "sweep.json").is_file():
            return ""
        record = read_record(self.folder)
        return str(record.trials[trial].state) if trial in record.trials else ""

    def wait_for(self, trial: str, state: str) -> None:
        wait_until(lambda: self.state(trial) == state, 90, f"{trial} to be {state}")

    def evaluations(self, trial: str) -> int:
        return len(read_metrics(self.folder / trial))

    def ask(self, action: Action, trial: str | None = None, priority: int | None = None) -> str:
        answer = ask(self.folder, Request(action, trial, priority))
        assert answer.is_done, answer.message
        return answer.message

    def outcome(self) -> Any:
        self._thread.join(60 * PATIENCE)
        return self._outcomes[0]


@pytest.fixture
def endless(sweep: Callable[..., Any], tmp_path: Path) -> Iterator[Running]:
    running = Running(sweep, Endless, tmp_path / "results" / "Endless")
    yield running
    if running._thread.is_alive():
        running.ask(Action.CANCEL)
        running.outcome()


def first_steps(folder: Path) -> list[tuple[int, int]]:
    """Return the first and last environment steps of each attempt."""
    return [
        (rows[0]["env_step"], rows[-1]["env_step"]) for rows in by_attempt(read_metrics(folder))
    ]


def test_a_paused_trial_gives_its_place_away_and_goes_on_where_it_was_when_it_ranks_higher(endless):
    endless.wait_for("trial_00000", "running")
    wait_until(lambda: endless.evaluations("trial_00000") > 2, 90, "some evaluations")
    assert not ask(endless.folder, Request(Action.PAUSE, "trial_00009")).is_done
    answer = ask(endless.folder, Request(Action.PAUSE))
    assert (answer.is_done, answer.message) == (False, "pause needs a trial")
    assert "next evaluation" in endless.ask(Action.PAUSE, "trial_00000")
    endless.wait_for("trial_00000", "paused")
    endless.wait_for("trial_00001", "running")
    assert read_record(endless.folder).trials["trial_00000"].is_held
    assert "stays paused" not in endless.ask(Action.PAUSE, "trial_00000")

    wait_until(lambda: endless.evaluations("trial_00001") > 2, 90, "evaluations of the other")
    endless.ask(Action.CONTINUE, "trial_00000")
    time.sleep(3)
    assert endless.state("trial_00000") == "paused", "of the same rank, it waits"
    endless.ask(Action.PRIORITY, "trial_00000", 5)
    endless.wait_for("trial_00000", "running")
    endless.wait_for("trial_00001", "paused")
    wait_until(lambda: len(first_steps(endless.folder / "trial_00000")) == 2, 60, "it to go on")
    (_, stopped_at), (went_on_at, _) = first_steps(endless.folder / "trial_00000")
    assert went_on_at > stopped_at

    endless.ask(Action.CANCEL, "trial_00000")
    endless.wait_for("trial_00000", "stopped")
    endless.wait_for("trial_00001", "running")
    endless.ask(Action.CANCEL)
    outcome = endless.outcome()
    assert outcome.record.status == "interrupted"
    assert outcome.record.trials["trial_00001"].state == "paused"
    assert processes_in(endless.folder) == []


def hang(config: Any) -> None:
    time.sleep(3600)


class Hanging(JobCfg):
    config = experiments.CARTPOLE
    entry = hang


def test_a_trial_that_hangs_is_cancelled_at_once(sweep, tmp_path):
    running = Running(sweep, Hanging, tmp_path / "results" / "Hanging")
    running.wait_for("trial_00000", "running")
    begun = time.monotonic()
    running.ask(Action.CANCEL, "trial_00000")
    record: SweepRecord = running.outcome().record
    assert time.monotonic() - begun < 15 * PATIENCE
    assert record.trials["trial_00000"].state == "stopped"


class Scored(JobCfg):
    config = ({}, {})
    entry = scripted([{"eval_value": 1.0}])
    num_samples = 2


def test_a_trial_that_was_paused_by_a_person_waits_for_one_also_in_a_resumed_sweep(sweep, resume):
    folder = sweep(Scored).folder
    with contextlib.closing(Ledger(folder)) as ledger:
        ledger.reopened("trial_00001")
    record = read_record(folder)
    record.trials["trial_00001"].is_held = True
    write_record(record, folder)

    running = Running(resume, read_earlier(folder), folder)
    running.wait_for("trial_00001", "paused")
    time.sleep(2)
    assert running.state("trial_00001") == "paused"
    running.ask(Action.CONTINUE, "trial_00001")
    assert running.outcome().record.trials["trial_00001"].state == "succeeded"
