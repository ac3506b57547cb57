from __future__ import annotations

import pytest

from ditk_ray.sweep.places import Places


@pytest.fixture
def places() -> Places:
    return Places()


def test_a_trial_that_is_held_gives_way_and_is_nobodys_to_choose(places):
    places.hold("a")
    assert places.must_give_way("a", running=["a", "b"], paused=set())
    assert not places.must_give_way("b", running=["a", "b"], paused=set())
    assert places.is_set_aside("a")
    places.wait("a")
    assert places.next_waiting({"a"}) is None


def test_a_trial_that_was_released_waits_for_a_place(places):
    places.hold("a")
    places.wait("a")
    places.release("a")
    assert places.next_waiting({"a"}) == "a"
    assert places.next_waiting(set()) is None, "it is still being paused"
    places.took_place("a")
    assert places.is_open_to_all


def test_one_that_was_released_before_it_paused_simply_goes_on(places):
    places.hold("a")
    places.release("a")
    assert not places.must_give_way("a", running=["a"], paused=set())
    assert places.is_open_to_all


def test_a_waiting_trial_of_the_same_rank_displaces_nobody(places):
    places.wait("waiting")
    assert not places.must_give_way("a", running=["a"], paused={"waiting"})


def test_the_lowest_ranked_gives_way_to_a_higher_one(places):
    places.wait("waiting")
    places.set_priority("waiting", 10)
    places.set_priority("middle", 5)
    running = ["middle", "low"]
    assert not places.must_give_way("middle", running, {"waiting"})
    assert places.must_give_way("low", running, {"waiting"})


def test_only_as_many_give_way_as_are_needed(places):
    places.wait("waiting")
    places.set_priority("waiting", 10)
    assert places.must_give_way("a", ["a", "b"], {"waiting"})
    places.wait("a")  # it is being paused, and counts as running until it is
    assert not places.must_give_way("b", ["a", "b"], {"waiting"})


def test_the_highest_ranked_of_those_that_wait_is_next(places):
    for name in ("a", "b", "c"):
        places.wait(name)
    assert places.next_waiting({"a", "b", "c"}) == "a", "of equals, who waits longest"
    places.set_priority("c", 1)
    assert places.next_waiting({"a", "b", "c"}) == "c"


def test_a_trial_that_is_over_is_forgotten(places):
    places.hold("a")
    places.wait("a")
    places.forget("a")
    assert places.is_open_to_all


def test_ranks_of_an_earlier_run_count():
    assert Places({"a": 3}).priority("a") == 3
