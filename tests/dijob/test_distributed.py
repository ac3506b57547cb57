"""A sweep of distributed trainings: the trial's config reaches every task of its DIJob."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, ClassVar

import pytest
from ray import tune

from ditk_ray import JobCfg
from ditk_ray.config.options import KubeSettings
from ditk_ray.record.trial_folder import own_metrics_of, read_metrics
from tests.dijob.pod_image import PodImage

pytestmark = [pytest.mark.kube, pytest.mark.ray]

TEMPLATE = Path(__file__).with_name("templates") / "distributed_sweep.yaml"

CONFIG = """
from easydict import EasyDict

main_config = EasyDict(dict(exp_name="parts", policy=dict(rate=0.25)))
create_config = EasyDict(dict(env=dict(type="none"), policy=dict(type="none")))
system_config = EasyDict(dict(learners=2))

if __name__ == "__main__":
    from trainings import evaluate

    evaluate(*({"eval_episode_return": [factor * main_config.policy.rate]} for factor in (1, 2)))
"""


def test_every_task_has_the_config_of_its_trial_and_one_reports(
    kube, namespace, stand_in, sweep, tmp_path
):
    image = PodImage(tmp_path / "image")
    image.make()
    packages = f"{image.packages}{os.pathsep}{image.stand_in}"
    template = tmp_path / "template.yaml"
    text = TEMPLATE.read_text().replace("PACKAGES", packages)
    template.write_text(text.replace("WORK", str(tmp_path / "work")))
    (tmp_path / "parts_config.py").write_text(CONFIG)

    class Parts(JobCfg):
        config = str(tmp_path / "parts_config.py")
        entry = "main"
        space: ClassVar[Any] = {"policy.rate": tune.grid_search([0.5, 3.0])}
        backend = "dijob"
        dijob_template = str(template)

    outcome = sweep(Parts, kube=KubeSettings(kube.kubeconfig(), namespace=namespace))

    assert outcome.succeeded
    for trial in outcome.record.trials.values():
        rate = trial.params["policy.rate"]
        log = (Path(trial.dir) / "attempt_0/log.txt").read_text()
        for task in ("coordinator-0", "learner-0", "collector-0", "collector-1"):
            assert f"[{task}] reads {rate} for 2 {trial.id}\n" in log
        rows = [own_metrics_of(row) for row in read_metrics(Path(trial.dir))]
        assert [row["eval_value"] for row in rows][:2] == [rate, 2 * rate]
