"""How often a trial that was lost is started again."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import cloudpickle
import pytest
from ray.tune.experiment import Trial

from ditk_ray.config.resources import TrialResources
from ditk_ray.errors import NeedsMemoryError
from ditk_ray.sweep.stopping import LossPolicy

HOUR = 3600.0
FIXED = TrialResources()
GROWING = TrialResources(memory=100, max_memory=200)


@pytest.fixture(autouse=True)
def lost(monkeypatch) -> None:
    """Have failures leave no error behind, as that of a worker that is gone."""
    monkeypatch.setattr(Trial, "pickled_error_file", None)


class Life:
    """A trial that fails as Tune sees it, and a clock."""

    def __init__(self, per_hour: int, resources: TrialResources = FIXED) -> None:
        self.now = 0.0
        self.trial = Trial("mock", stub=True)
        self.loss_policy = LossPolicy(per_hour, resources, lambda: self.now)
        self.loss_policy.admit(self.trial)

    def is_retried(self) -> bool:
        """Fail once; Tune decides on it before it tells of it."""
        self.trial.run_metadata.num_failures += 1
        is_retried = bool(self.trial.should_recover())
        if is_retried:
            self.loss_policy.note(self.trial)
        return is_retried

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.loss_policy.look([self.trial])


def test_losses_are_forgiven_so_many_times_within_an_hour():
    life = Life(2)
    assert [life.is_retried() for _ in range(3)] == [True, True, False]


def test_losses_of_the_hour_before_do_not_count():
    life = Life(2)
    assert [life.is_retried() for _ in range(2)] == [True, True]
    life.wait(HOUR + 1)
    assert [life.is_retried() for _ in range(3)] == [True, True, False]


def test_a_loss_now_and_then_is_forgiven_for_ever():
    life = Life(2)
    for _ in range(20):
        assert life.is_retried()
        life.wait(0.6 * HOUR)


def test_a_trial_that_may_not_be_lost_is_not_started_again():
    assert not Life(0).is_retried()


@pytest.fixture
def needs_memory(tmp_path, monkeypatch) -> Any:
    """Have failures be for want of memory."""
    file = tmp_path / "error.pkl"
    file.write_bytes(cloudpickle.dumps(SimpleNamespace(cause=NeedsMemoryError("more", 200))))
    monkeypatch.setattr(Trial, "pickled_error_file", str(file))


@pytest.mark.parametrize("per_hour", [0, 1])
def test_more_memory_is_given_also_where_losses_are_not_forgiven(needs_memory, per_hour):
    life = Life(per_hour, GROWING)
    assert life.is_retried()
    assert life.trial.placement_group_factory.required_resources["memory"] == 200


def test_a_trial_that_has_its_memory_may_not_be_lost_either(needs_memory):
    life = Life(0, GROWING)
    assert life.is_retried()
    assert not life.is_retried()
