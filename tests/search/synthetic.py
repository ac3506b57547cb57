"""An entry that evaluates quickly, and better for some learning rates than for others."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from ray import tune

from ditk_ray import JobCfg
from tests.search.spaces import RATE
from tests.trial.experiments import CARTPOLE

STEPS = 640
INTERVAL = 64
"""The time between evaluations, as CartPole's config has it."""


def climb(config: Any, max_env_step: int) -> None:
    """Evaluate with a score that grows with the steps, faster where the rate is near 1e-3."""
    from ding.worker.collector.base_serial_evaluator import ISerialEvaluator

    slope = 1.0 / (1.0 + abs(math.log10(config[0].policy.learn.learning_rate) + 3))

    class Own(ISerialEvaluator):
        def reset_policy(self, *args: Any) -> None: ...
        def reset_env(self, *args: Any) -> None: ...
        def reset(self, *args: Any) -> None: ...
        def close(self) -> None: ...
        def should_eval(self, train_iter: int) -> bool:
            return True

        def eval(self, save_ckpt_fn: Any = None, train_iter: int = -1, envstep: int = -1) -> Any:
            return False, {"eval_episode_return": [slope * envstep]}

    evaluator = Own()
    for step in range(0, max_env_step, INTERVAL):
        evaluator.eval(None, step // 8, step)


class Climbing(JobCfg):
    config = CARTPOLE
    entry = climb
    space: ClassVar[Any] = {
        RATE: tune.loguniform(1e-5, 1e-1),
        "policy.discount_factor": tune.uniform(0.9, 0.999),
    }
    num_samples = 5
    max_env_step = STEPS
