"""How often trials are evaluated, told from their config."""

from __future__ import annotations

from typing import Any

import pytest
from ray import tune

from ditk_ray.config.engine_config import EngineConfig
from ditk_ray.config.space import build_space
from ditk_ray.search.budget import Budget, derive_budget

NOTHING = build_space({})


def config(on_policy: bool = False, **changes: Any) -> EngineConfig:
    values = {
        "eval.evaluator.eval_freq": 100,
        "collect.n_sample": 32,
        "learn.update_per_collect": 8,
        "learn.batch_size": 64,
        "on_policy": on_policy,
    } | changes
    paths = {f"policy.{path}": value for path, value in values.items()}
    return EngineConfig({}, {}).overlaid(paths)


def test_off_policy_training_collects_between_updates():
    assert derive_budget(config(), NOTHING, 10_000) == Budget(10_000, "env_step", 13 * 32)


def test_on_policy_training_makes_epochs_of_batches_of_what_it_collects():
    found = derive_budget(
        config(True, **{"collect.n_sample": 256, "learn.epoch_per_collect": 2}), NOTHING, 10_000
    )
    assert found.eval_interval == 13 * 256  # eight iterations of each 256 steps


def test_training_iterations_count_where_only_they_are_limited():
    assert derive_budget(config(), NOTHING, None, 500) == Budget(500, "train_iter", 104)
    assert derive_budget(config(), NOTHING, 1000, 500).time_attr == "env_step"


def test_a_length_that_only_the_scheduler_is_told_is_one_of_steps():
    assert derive_budget(config(), NOTHING) == Budget(None, "env_step", 13 * 32)


def test_episodes_have_no_length_that_a_config_tells():
    episodes = config(**{"collect.n_sample": None, "collect.n_episode": 8})
    found = derive_budget(episodes, NOTHING, 10_000)
    assert found.eval_interval is None
    assert found.interval == 500


@pytest.mark.parametrize(
    "domain", [tune.randint(2, 9), tune.choice([8, 2]), tune.grid_search([2, 4]), 2]
)
def test_where_the_space_varies_it_the_longest_interval_counts(domain):
    space = build_space({"policy.learn.update_per_collect": domain})
    assert derive_budget(config(), space, 10_000).eval_interval == 50 * 32


def test_a_config_that_says_nothing_leaves_a_share_of_the_budget():
    assert derive_budget(EngineConfig({}, {}), NOTHING, 10_000).interval == 500


@pytest.mark.parametrize(
    ("budget", "grace"),
    [
        (Budget(10_000, "env_step", 64), 1112),  # a ninth: two decisions until the end
        (Budget(10_000, "env_step", 500), 1500),  # three evaluations
        (Budget(10_000, "env_step", 2000), 3334),  # a third: else nothing is saved
        (Budget(10_000, "env_step", 6000), 6000),  # there is no evaluation before
        (Budget(10_000), 1500),
        (Budget(3), 1),
    ],
)
def test_the_grace_period_follows_from_evaluations_and_budget(budget, grace):
    assert budget.grace_period(3) == grace
