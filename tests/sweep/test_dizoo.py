"""Configs of DI-engine's zoo run as trials, unmodified, whatever their policy and entry."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ditk_ray import JobCfg

pytestmark = pytest.mark.ray

CARTPOLE = "dizoo.classic_control.cartpole.config.cartpole_{}_config"
PENDULUM = "dizoo.classic_control.pendulum.config.pendulum_{}_config"

# Each limit lets its config evaluate twice.
CONFIGS = [
    (CARTPOLE.format("mdqn"), "serial", 121),
    (CARTPOLE.format("c51"), "serial", 1257),
    (CARTPOLE.format("rainbow"), "serial", 2961),
    (CARTPOLE.format("iqn"), "serial", 1233),
    (CARTPOLE.format("sac"), "serial", 6873),
    (CARTPOLE.format("ppo_offpolicy"), "serial", 1041),
    (CARTPOLE.format("impala"), "serial", 5537),
    (CARTPOLE.format("a2c"), "serial_onpolicy", 6153),
    (CARTPOLE.format("pg"), "serial_onpolicy", 6770),
    (CARTPOLE.format("rnd_onppo"), "serial_reward_model_onpolicy", 2353),
    (PENDULUM.format("td3"), "serial", 3249),
    (PENDULUM.format("ddpg"), "serial", 3249),
    (PENDULUM.format("bdq"), "serial", 211),
    ("dizoo.bitflip.config.bitflip_pure_dqn_config", "serial", 2898),
]
# The shipped jobs are of the other kinds of entries, and one of another environment.
ALWAYS = {CARTPOLE.format("rnd_onppo")}


@pytest.mark.parametrize(
    ("module", "named", "steps"),
    [
        pytest.param(*config, marks=[] if config[0] in ALWAYS else pytest.mark.slow)
        for config in CONFIGS
    ],
    ids=[config[0][-28:] for config in CONFIGS],
)
def test_a_zoo_config_runs_as_a_trial(module: str, named: str, steps: int, sweep: Any) -> None:
    class Zoo(JobCfg):
        config = module
        entry = named
        max_env_step = steps

    (trial,) = sweep(Zoo).record.trials.values()
    assert trial.error is None
    assert trial.state == "succeeded"
    assert trial.reports >= 3  # two evaluations and the end
    assert trial.metrics["train_iter"] > 0


@pytest.mark.slow
def test_an_entry_with_an_expert_runs_as_a_trial(sweep: Any, tmp_path: Any) -> None:
    """SQIL learns from an expert: the config of another experiment and its checkpoint."""
    expert_file = CARTPOLE.format("sql")

    class Expert(JobCfg):
        config = expert_file
        max_env_step = 193

    outcome = sweep(Expert)
    (checkpoint,) = outcome.folder.glob("trial_*/attempt_0/*/ckpt/ckpt_best.pth.tar")

    class Sqil(JobCfg):
        config = CARTPOLE.format("sqil")
        entry = "serial_sqil"
        entry_args = {"expert_cfg": expert_file}  # noqa: RUF012
        space = {"policy.collect.model_path": str(checkpoint)}  # noqa: RUF012
        max_env_step = 161

    (trial,) = sweep(Sqil).record.trials.values()
    assert trial.error is None
    assert trial.reports >= 3


def test_behaviour_cloning_runs_as_a_trial_without_environment_steps(sweep: Any) -> None:
    outcome = sweep(_collected(sweep))
    (trial,) = outcome.record.trials.values()
    assert trial.error is None
    assert trial.metrics["env_step"] == 0
    assert trial.metrics["train_iter"] > 0


def _collect(config: Any, seed: int) -> dict[str, float]:
    """Train for a moment and collect a little data: an entry of the tests' own."""
    from ding.entry import collect_demo_data, serial_pipeline

    serial_pipeline(config, seed, max_env_step=100)
    (checkpoint,) = Path.cwd().glob("*/ckpt/ckpt_best.pth.tar")
    collect_demo_data(
        config, seed, collect_count=200, expert_data_path="expert.pkl", state_dict_path=checkpoint
    )
    return {"collected": 200.0}


def _collected(sweep: Any) -> type[JobCfg]:
    class Collect(JobCfg):
        config = CARTPOLE.format("dqn")
        entry = _collect

    (data,) = sweep(Collect).folder.glob("trial_*/attempt_0/expert.pkl")

    class Clone(JobCfg):
        config = CARTPOLE.format("bc")
        entry = "serial_bc"
        entry_args = {"data_path": str(data)}  # noqa: RUF012
        max_train_iter = 45

    return Clone
