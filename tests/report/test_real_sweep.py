"""A report on a sweep that really ran."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import pytest
from ray import tune

from ditk_ray import JobCfg
from ditk_ray.execution.scripted import scripted
from ditk_ray.report.page import write_report

pytestmark = [pytest.mark.ray, pytest.mark.browser]


@scripted
def refuse_negative_sizes(config: Any, **_: Any) -> Iterator[dict[str, float]]:
    if min(config.policy.model.encoder_hidden_size_list) < 0:
        raise ValueError("a layer of negative size")
    for step in (0, 100, 200):
        yield {"eval_value": step * config.policy.learn.learning_rate, "env_step": step}


class WithAFailure(JobCfg):
    config = ({"policy": {"model": {}, "learn": {}}}, {})
    entry = refuse_negative_sizes
    space: ClassVar[Any] = {
        "policy.model.encoder_hidden_size_list": tune.grid_search([[32], [64, -64], [64]]),
        "policy.learn.learning_rate": tune.loguniform(1e-4, 1e-2),
    }
    seeds = 2
    max_env_step = 200


def test_a_real_sweep_with_a_failure_and_two_seeds_is_shown_whole(sweep, opened):
    outcome = sweep(WithAFailure)
    seen = opened(write_report(outcome.folder))
    best = outcome.record.best()
    assert seen.text(".lead").startswith("3 trials in ")
    assert f"the best, {best.id}, reached eval_value" in seen.text(".lead")
    assert "1 trial failed." in seen.text(".lead")
    assert f"{outcome.folder}/best_config.py" in seen.text("#command")
    assert "negative size" in seen.text("#failures pre")
    assert "Its thin lines are its 2 seeds." in seen.text("#caption-curves")
    seen.look_at("#chart-curves")
    assert seen.lines("chart-curves") == 2 + 2 + 1
    assert len(seen.table()) == 3
    seen.page.locator("#details summary").first.click()
    assert "grid [[32], [64, -64], [64]]" in seen.text("#details")
