"""Trials that an earlier process left open are as they were."""

from __future__ import annotations

from typing import Any

import pytest
from ray.tune.experiment import Trial
from ray.tune.schedulers import FIFOScheduler

from ditk_ray.config.resources import TrialResources
from ditk_ray.sweep.earlier import EarlierSweep
from ditk_ray.sweep.losses import Losses
from ditk_ray.sweep.places import Places
from ditk_ray.sweep.taken_up import TakenUp
from ditk_ray.sweep.trial_source import OpenTrial, trial_name
from ditk_ray.tracking.record import SweepRecord, TrialRecord
from ditk_ray.trial.failure_log import Failure, FailureLog

RESOURCES = TrialResources(memory=100, max_memory=200)


@pytest.fixture
def earlier(tmp_path) -> EarlierSweep:
    record = SweepRecord("earlier", "eval_value", "max")
    record.trials["trial_00000"] = TrialRecord("trial_00000", {})
    (tmp_path / "trial_00000").mkdir()
    saved: Any = None
    return EarlierSweep(tmp_path, saved, record, (OpenTrial("trial_00000", {}),), {})


def taken(earlier: EarlierSweep, places: Places) -> Trial:
    losses = Losses(1, RESOURCES)
    trial = Trial("mock", stub=True, trial_id="00000", trial_name_creator=trial_name)
    TakenUp(earlier, FIFOScheduler(), places, losses, RESOURCES).take(trial)
    return trial


def memory(trial: Trial) -> Any:
    given = trial.placement_group_factory
    return given and given.required_resources.get("memory")


def test_a_trial_that_a_person_has_paused_stays_paused_until_it_is_released(earlier):
    earlier.record.trials["trial_00000"].is_held = True
    places = Places()
    assert taken(earlier, places).status == Trial.PAUSED
    assert places.is_held("trial_00000")
    assert places.next_waiting({"trial_00000"}) is None
    places.release("trial_00000")
    assert places.next_waiting({"trial_00000"}) == "trial_00000"
    assert earlier.held == ("trial_00000",)


def test_another_one_waits_for_its_place(earlier):
    places = Places()
    assert taken(earlier, places).status == Trial.PENDING
    assert places.is_open_to_all


@pytest.mark.parametrize(("kind", "given"), [("out_of_memory", 200), ("stall", None)])
def test_memory_that_was_granted_is_granted_again(earlier, kind, given):
    FailureLog(earlier.folder / "trial_00000").add(Failure(kind, "it failed", 0))
    assert memory(taken(earlier, Places())) == given
