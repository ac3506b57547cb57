"""A trial as Ray Tune drives it: saved, restored and taken over by other workers."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from ray import tune

from ditk_ray.execution.pickled_call import Pickled
from ditk_ray.ray_cluster.session import remote_ray
from ditk_ray.trial.checkpoints import CheckpointStore
from ditk_ray.trial.plan import TrialPlan
from ditk_ray.trial.reports import ATTEMPT, ENDED, FAILURE
from ditk_ray.trial.trainable import TrialTrainable
from tests.processes import processes_in
from tests.trial import experiments
from tests.trial.experiments import make_plan

pytestmark = pytest.mark.ray

Worker = Callable[..., TrialTrainable]


@pytest.fixture(scope="module")
def connected(ray_address):
    """A process that is part of a cluster, as a worker's is."""
    with remote_ray(ray_address):
        yield


@pytest.fixture
def worker(warm, tmp_path, connected):
    """Make workers as Tune does, each for a trial of its own, and clean up after them."""
    made: list[TrialTrainable] = []

    def make(name: str = "trial_0", resources: Any = None, **changes: Any) -> TrialTrainable:
        usual = {"checkpoints": True, "limits": {"max_env_step": 500}}
        plan = make_plan(tmp_path, warm.key, **usual | changes)
        worker = bound(plan)({"__trial_info__": trial_info(name, resources)})
        made.append(worker)
        return worker

    yield make
    for each in made:
        each.stop()
    assert processes_in(tmp_path) == []


def bound(plan: TrialPlan) -> type[TrialTrainable]:
    class Bound(TrialTrainable):
        def setup(self, config: dict[str, Any], plan: Any = Pickled.pack(plan)) -> None:  # noqa: B008
            super().setup(config, plan)

    return Bound


def trial_info(name: str, resources: Any) -> SimpleNamespace:
    return SimpleNamespace(trial_name=name, trial_id=name, trial_resources=resources)


def to_end(worker: TrialTrainable) -> list[dict[str, Any]]:
    results = [worker.train()]
    while not results[-1]["done"]:
        results.append(worker.train())
    return results


def test_a_worker_goes_on_where_another_was_killed(worker, tmp_path):
    first = worker(checkpoints_every_evaluation=True)
    before = [first.train() for _ in range(2)]
    first.stop()
    rest = to_end(worker(checkpoints_every_evaluation=True))
    counts = [result["training_iteration"] for result in before + rest]
    assert counts == list(range(1, len(counts) + 1))
    assert rest[0][ATTEMPT] == 1
    assert rest[0]["env_step"] > before[-1]["env_step"]


def test_a_trial_that_had_ended_is_not_run_again(worker, tmp_path):
    last = to_end(worker())[-1]
    (again,) = to_end(worker())
    assert again[ENDED] == "training"
    assert again["eval_value"] == last["eval_value"]
    assert again["training_iteration"] == last["training_iteration"]
    assert not (tmp_path / "trial_0/attempt_1").exists()


def test_a_score_that_was_no_number_is_none_again(worker):
    to_end(worker(entry=experiments.evaluate_to_nan, limits={}))
    (again,) = to_end(worker(entry=experiments.evaluate_to_nan, limits={}))
    assert again[ENDED] == "nan"
    assert math.isnan(again["eval_value"])


def test_an_exploit_survives_a_crash_right_afterwards(worker, tmp_path):
    every = {"checkpoints_every_evaluation": True}
    donor, taker = worker("trial_0", **every), worker("trial_1", **every)
    for _ in range(3):
        given = donor.train()
    taker.train()
    saved = tmp_path / "saved"
    saved.mkdir()
    donor.save_checkpoint(str(saved))
    taker.reset_config({})
    taker.load_checkpoint(str(saved))
    taker.stop()  # before it has made a step
    result = worker("trial_1", **every).train()
    assert result["training_iteration"] == given["training_iteration"] + 1
    assert result["env_step"] > given["env_step"]
    assert CheckpointStore(tmp_path / "trial_0").latest().meta.trial == "trial_0"


def test_a_failure_is_a_last_report_and_no_exception(worker):
    (result,) = to_end(worker(entry=experiments.raise_value_error, limits={}))
    assert (result[ENDED], result[FAILURE]["kind"]) == ("failed", "bug")


def test_a_mistake_in_the_trial_itself_is_a_failure_of_kind_bug(worker, monkeypatch):
    def broken(*_: Any) -> Any:
        raise KeyError("policy")

    monkeypatch.setattr(TrialPlan, "config_of", broken)
    (result,) = to_end(worker())
    assert result[FAILURE]["kind"] == "bug"
    assert "KeyError" in result[FAILURE]["error"]


def test_trouble_with_the_node_reaches_tune(worker, tmp_path):
    (tmp_path / "trial_0").write_text("in the way of the trial's folder")
    with pytest.raises(OSError, match="trial_0"):
        worker().train()


def test_a_trial_uses_the_resources_that_it_was_given_last(worker):
    given = tune.PlacementGroupFactory([{"CPU": 2, "memory": 2.0**31}])
    result = worker(entry=experiments.tell_environment, resources=given, limits={}).train()
    assert result["threads"] == 2
