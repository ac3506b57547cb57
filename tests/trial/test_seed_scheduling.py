from __future__ import annotations

from ditk_ray.trial.attempt import LEAD, choose_turns


def test_those_furthest_behind_compute_as_many_as_may():
    assert choose_turns({3: 2, 5: 1, 7: 2, 9: 0}, slots=2) == {9, 5}


def test_of_equals_those_named_first_have_their_turn():
    assert choose_turns({5: 0, 3: 0, 4: 0}, slots=1) == {5}


def test_with_a_place_for_each_all_compute_until_one_is_far_ahead():
    assert choose_turns({0: 4, 1: 4 + LEAD - 1}, slots=2) == {0, 1}
    assert choose_turns({0: 4, 1: 4 + LEAD}, slots=2) == {0}


def test_turn_by_turn_everyone_gets_equally_far():
    evaluations = {0: 0, 1: 0, 2: 0}
    for _ in range(30):
        (seed,) = choose_turns(evaluations, slots=1)
        evaluations[seed] += 1
    assert evaluations == {0: 10, 1: 10, 2: 10}


def test_when_all_have_ended_nobody_computes():
    assert choose_turns({}, slots=2) == set()
