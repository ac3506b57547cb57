"""An attempt whose jobs are out of reach: its gateway is gone, as it is with a killed driver."""

from __future__ import annotations

import time
import uuid
from pathlib import Path
from typing import Any

import pytest
import ray

from ditk_ray.config.options import KubeSettings
from ditk_ray.dijob.executor import DijobExecutor
from ditk_ray.dijob.gateway import Place
from ditk_ray.dijob.template import read_template
from ditk_ray.dijob.tracker import Message, Phase
from ditk_ray.errors import OutOfReachError
from ditk_ray.execution.executor import Evaluated
from ditk_ray.ray_cluster.session import remote_ray
from ditk_ray.trial.attempt import RUNS_FILE, start_attempt
from ditk_ray.trial.trainable import RetryingTrial
from tests.trial.experiments import make_plan

pytestmark = pytest.mark.ray

TEMPLATE = Path(__file__).with_name("templates") / "sweep.yaml"


class StandInGateway:
    """Plays the gateway: one evaluation of each job, and then nothing more."""

    def submit(self, order: Any, log: Path, is_new: bool) -> bool:
        return True

    def events(self, job: str, log: Path, place: Place) -> tuple[Place, list[Any]]:
        if place.after:
            time.sleep(0.2)
            return place, []
        said = Evaluated(1, {"eval_value": 9.0, "env_step": 100})
        return Place("one", 2), [Phase("Running"), Message(1, said, "pod", "uid")]

    def release(self, job: str, is_kept: bool) -> None:
        pass


@pytest.fixture(scope="module")
def connected(ray_address):
    with remote_ray(ray_address):
        yield


@pytest.fixture
def gateway(connected):
    name = f"gateway-{uuid.uuid4().hex}"
    # It reaches the workers by value: they do not see the tests.
    ray.cloudpickle.register_pickle_by_value(__import__(__name__, fromlist=["x"]))
    actor = ray.remote(StandInGateway).options(name=name, num_cpus=0).remote()
    yield name, actor
    ray.kill(actor)


@pytest.fixture
def trial(gateway, tmp_path):
    name, _ = gateway
    executor = DijobExecutor(
        read_template(TEMPLATE), "sweep-0a1b2c", KubeSettings(namespace="rl"), {}, name
    )
    plan = make_plan(tmp_path, executor=executor)
    folder = tmp_path / "trial_0"
    return RetryingTrial(plan, folder, lambda: start_attempt(plan, {}, folder))


def attempts(folder: Path) -> list[str]:
    return [one.name for one in (folder / "trial_0").glob("attempt_*")]


def test_a_trial_whose_gateway_is_gone_leaves_its_jobs_to_whoever_comes_next(
    trial, gateway, tmp_path
):
    assert trial.next_report()["eval_value"] == 9.0
    ray.kill(gateway[1])
    with pytest.raises(OutOfReachError):
        trial.next_report()
    trial.close()
    assert attempts(tmp_path) == ["attempt_0"]
    assert (tmp_path / "trial_0/attempt_0" / RUNS_FILE).is_file()
    assert not (tmp_path / "trial_0/failures.jsonl").exists()


def test_a_trial_that_cannot_submit_its_jobs_any_more_has_not_failed(trial, gateway, tmp_path):
    ray.kill(gateway[1])
    with pytest.raises(OutOfReachError):
        trial.next_report()
    assert (tmp_path / "trial_0/attempt_0" / RUNS_FILE).is_file()
    assert not (tmp_path / "trial_0/failures.jsonl").exists()


def test_jobs_that_are_given_up_are_nobodys_to_adopt(trial, tmp_path):
    trial.next_report()
    trial.close()
    assert not (tmp_path / "trial_0/attempt_0" / RUNS_FILE).exists()
