"""What the scheduler that was chosen is shown of a sweep."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ditk_ray.search.budget import Budget
from ditk_ray.search.schedulers import build_scheduler
from ditk_ray.sweep.controlled_scheduler import ControlledScheduler
from ditk_ray.sweep.last_saves import LastSaves
from ditk_ray.sweep.places import Places
from tests.search.spaces import only_rate


def seen_trials(tmp_path: Any, name: str, has_more: bool, **options: Any) -> int:
    """Return how many trials a scheduler sees after one was made."""
    inner = build_scheduler(name, options, Budget(1000, "env_step", 100.0), only_rate())
    source: Any = SimpleNamespace(has_more=has_more)
    nothing: Any = print
    saves = LastSaves(tmp_path, True)
    scheduler = ControlledScheduler(inner, Places(), source, nothing, nothing, nothing, saves)
    controller = SimpleNamespace(get_trials=lambda: ["made"])
    return len(scheduler._with_those_to_come(controller).get_trials())


@pytest.mark.parametrize("given", [("pbt", {}), ("resource_changing", {"base": "pbt"})])
def test_a_population_takes_turns_also_with_trials_that_are_not_made_yet(tmp_path, given):
    name, options = given
    assert seen_trials(tmp_path, name, True, **options) == 2
    assert seen_trials(tmp_path, name, False, **options) == 1


def test_others_see_what_there_is(tmp_path):
    assert seen_trials(tmp_path, "asha", True) == 1
