"""A script that evaluates at once, and better for some learning rates than for others."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, ClassVar

from ray import tune

from ditk_ray import JobCfg
from ditk_ray.execution.scripted import scripted
from tests.search.spaces import RATE

STEPS = 640
INTERVAL = 64
"""The time between evaluations, as CartPole's config has it."""


@scripted
def climb(config: Any, max_env_step: int, **_: Any) -> Iterator[dict[str, float]]:
    """Evaluate with a score that grows with the steps, faster where the rate is near 1e-3."""
    slope = 1.0 / (1.0 + abs(math.log10(config.policy.learn.learning_rate) + 3))
    for step in range(0, max_env_step, INTERVAL):
        yield {"eval_value": slope * step, "env_step": step, "train_iter": step // 8}


class Climbing(JobCfg):
    config = ({"policy": {"learn": {"learning_rate": 1e-3}, "discount_factor": 0.97}}, {})
    entry = climb
    space: ClassVar[Any] = {
        RATE: tune.loguniform(1e-5, 1e-1),
        "policy.discount_factor": tune.uniform(0.9, 0.999),
    }
    num_samples = 5
    max_env_step = STEPS
