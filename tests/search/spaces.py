"""Spaces that tests search, and a loop that asks and tells as a sweep does."""

from __future__ import annotations

import math
from typing import Any

from ray import tune

from ditk_ray.config.space import SearchSpace, build_space

RATE = "policy.learn.learning_rate"
OBJECTIVE = (("eval_value", "max"),)


def every_kind() -> SearchSpace:
    """Return a space with a domain of every kind that a model can be made of."""
    return build_space(
        {
            "policy": {
                "discount_factor": tune.uniform(0.9, 0.999),
                "nstep": tune.randint(1, 6),
                "learn": {
                    "learning_rate": tune.loguniform(1e-5, 1e-1),
                    "batch_size": tune.qlograndint(32, 256, 32),
                },
                "model": {"encoder_hidden_size_list": tune.choice([[64, 64], [128]])},
                "other": {
                    "eps": {
                        "type": tune.choice(["exp", "linear"]),
                        "end": tune.quniform(0.0, 0.2, 0.05),
                        "decay": tune.lograndint(1000, 20000),
                    }
                },
                "priority": tune.choice([True, False]),
            },
            "seed": tune.choice([7]),
        }
    )


def only_rate() -> SearchSpace:
    return build_space({RATE: tune.loguniform(1e-5, 1e-1)})


def distance(params: dict[str, Any]) -> float:
    """Return by how many powers of ten a learning rate is off the best one."""
    return abs(math.log10(params[RATE]) + 3)


def asked(searcher: Any, count: int, told: int | None = None) -> list[dict[str, Any]]:
    """Ask for trials one by one, and tell how far each is off; `told` of them at most."""
    points = []
    for number in range(count):
        point = searcher.suggest(f"trial_{number}")
        points.append(point)
        result = {"eval_value": -distance(point), "training_iteration": 1}
        result["hyperband_info"] = {"budget": 1}
        if told is None or number < told:
            searcher.on_trial_result(f"trial_{number}", result)
            searcher.on_trial_complete(f"trial_{number}", result)
    return points
