"""Whole sweeps on a real Ray whose trials only seem to train."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import pytest
from ray import tune

from ditk_ray import JobCfg
from ditk_ray.errors import BadConfigError
from ditk_ray.execution.scripted import scripted
from ditk_ray.record.record import TrialState
from ditk_ray.record.trial_folder import read_metrics

pytestmark = pytest.mark.ray


@scripted
def climb(config: Any, seed: int = 0) -> Iterator[dict[str, float]]:
    for step in range(1, 6):
        yield {"eval_value": step * config.policy.rate, "env_step": 10.0 * step}


@scripted
def stumble(config: Any, seed: int = 0) -> Iterator[dict[str, float]]:
    yield {"eval_value": 1.0, "env_step": 10.0}
    raise RuntimeError("no such luck")


class Climbing(JobCfg):
    config = ({"policy": {"rate": 1.0}}, {})
    entry = climb
    space: ClassVar[Any] = {"policy.rate": tune.grid_search([1.0, 2.0, 3.0])}


def test_a_scripted_sweep_is_searched_recorded_and_won_without_di_engine(sweep):
    outcome = sweep(Climbing)
    best = outcome.record.best()
    assert outcome.succeeded
    assert (best.params["policy.rate"], outcome.record.score(best)) == (3.0, 15.0)
    steps = [row["env_step"] for row in read_metrics(outcome.folder / best.id)]
    assert steps[:5] == [10.0, 20.0, 30.0, 40.0, 50.0]


def test_a_script_that_raises_is_a_failed_trial_with_its_log(sweep):
    outcome = sweep(type("Stumbling", (Climbing,), {"entry": stumble, "space": {}}))
    (trial,) = outcome.record.trials.values()
    assert trial.state is TrialState.FAILED
    assert "RuntimeError: no such luck" in trial.error
    (log,) = (outcome.folder / trial.id).glob("attempt_*/log.txt")
    assert "Traceback" in log.read_text()


def test_a_scheduler_that_pauses_is_refused_where_nothing_can_resume(sweep):
    with pytest.raises(BadConfigError, match="pauses trials"):
        sweep(type("Paused", (Climbing,), {"scheduler": "pbt", "max_env_step": 50}))
