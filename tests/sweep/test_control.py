"""What the scheduler that was chosen is shown of a sweep."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ditk_ray.search.budget import Budget
from ditk_ray.search.schedulers import build_scheduler
from ditk_ray.sweep.control import PATIENCE, ControlledScheduler, PauseCheckpoints, TrialQueue
from ditk_ray.trial.reports import SAVE_FILE, SAVED
from tests.search.spaces import only_rate


def seen_trials(tmp_path: Any, name: str, has_more: bool, **options: Any) -> int:
    """Return how many trials a scheduler sees after one was made."""
    inner = build_scheduler(name, options, Budget(1000, "env_step", 100.0), only_rate())
    generator: Any = SimpleNamespace(has_more=has_more)
    nothing: Any = print
    asked = PauseCheckpoints(tmp_path, True)
    scheduler = ControlledScheduler(
        inner, TrialQueue(), generator, nothing, nothing, nothing, asked
    )
    controller = SimpleNamespace(get_trials=lambda: ["made"])
    return len(scheduler._with_those_to_come(controller).get_trials())


@pytest.mark.parametrize("given", [("pbt", {}), ("resource_changing", {"base": "pbt"})])
def test_a_population_takes_turns_also_with_trials_that_are_not_made_yet(tmp_path, given):
    name, options = given
    assert seen_trials(tmp_path, name, True, **options) == 2
    assert seen_trials(tmp_path, name, False, **options) == 1


def test_others_see_what_there_is(tmp_path):
    assert seen_trials(tmp_path, "asha", True) == 1


@pytest.fixture
def queue() -> TrialQueue:
    return TrialQueue()


def test_a_trial_that_is_held_gives_way_and_is_nobodys_to_choose(queue):
    queue.held.add("a")
    assert queue.must_give_way("a", running=["a", "b"], paused=set())
    assert not queue.must_give_way("b", running=["a", "b"], paused=set())
    assert queue.is_set_aside("a")
    queue.wait("a")
    assert queue.next_waiting({"a"}) is None


def test_a_trial_that_was_released_waits_for_a_place(queue):
    queue.held.add("a")
    queue.wait("a")
    queue.held.discard("a")
    assert queue.next_waiting({"a"}) == "a"
    assert queue.next_waiting(set()) is None, "it is still being paused"
    queue.took_place("a")
    assert queue == TrialQueue()


def test_one_that_was_released_before_it_paused_simply_goes_on(queue):
    queue.held.add("a")
    queue.held.discard("a")
    assert not queue.must_give_way("a", running=["a"], paused=set())
    assert queue == TrialQueue()


def test_a_waiting_trial_of_the_same_rank_displaces_nobody(queue):
    queue.wait("waiting")
    assert not queue.must_give_way("a", running=["a"], paused={"waiting"})


def test_the_lowest_ranked_gives_way_to_a_higher_one(queue):
    queue.wait("waiting")
    queue.priorities["waiting"] = 10
    queue.priorities["middle"] = 5
    running = ["middle", "low"]
    assert not queue.must_give_way("middle", running, {"waiting"})
    assert queue.must_give_way("low", running, {"waiting"})


def test_only_as_many_give_way_as_are_needed(queue):
    queue.wait("waiting")
    queue.priorities["waiting"] = 10
    assert queue.must_give_way("a", ["a", "b"], {"waiting"})
    queue.wait("a")  # it is being paused, and counts as running until it is
    assert not queue.must_give_way("b", ["a", "b"], {"waiting"})


def test_the_highest_ranked_of_those_that_wait_is_next(queue):
    for name in ("a", "b", "c"):
        queue.wait(name)
    assert queue.next_waiting({"a", "b", "c"}) == "a", "of equals, who waits longest"
    queue.priorities["c"] = 1
    assert queue.next_waiting({"a", "b", "c"}) == "c"


def test_a_trial_that_is_over_is_forgotten(queue):
    queue.held.add("a")
    queue.wait("a")
    queue.forget("a")
    assert queue == TrialQueue()


def test_ranks_of_an_earlier_run_count():
    assert TrialQueue({"a": 3}).priority("a") == 3


@pytest.fixture
def wish(tmp_path: Path) -> Path:
    (tmp_path / "trial").mkdir()
    return tmp_path / "trial" / SAVE_FILE


def test_a_pause_waits_for_an_evaluation_that_is_saved(tmp_path, wish):
    asked = PauseCheckpoints(tmp_path, True)
    assert asked.must_wait("trial", {})
    assert wish.exists()
    assert asked.must_wait("trial", {})
    assert not asked.must_wait("trial", {SAVED: True})
    assert not wish.exists()


def test_it_does_not_wait_for_ever(tmp_path, wish):
    asked = PauseCheckpoints(tmp_path, True)
    assert [asked.must_wait("trial", {}) for _ in range(PATIENCE + 1)] == [True] * PATIENCE + [
        False
    ]
    assert not wish.exists()


def test_it_does_not_wait_at_all_where_nothing_is_saved(tmp_path, wish):
    assert not PauseCheckpoints(tmp_path, False).must_wait("trial", {})
    assert not wish.exists()


def test_a_trial_that_need_not_give_way_any_more_saves_as_before(tmp_path, wish):
    asked = PauseCheckpoints(tmp_path, True)
    asked.must_wait("trial", {})
    asked.forget("trial")
    assert not wish.exists()
