from __future__ import annotations

import pytest

from ditk_ray.report.axes import build_axes, short_names, spread

LOG = {"rate": {"kind": "float", "lower": 1e-4, "upper": 1e-2, "log": True}}


def test_names_are_as_short_as_they_can_be_told_apart():
    assert short_names(["a.b.rate", "a.c.rate", "a.size", "size"]) == {
        "a.b.rate": "b.rate",
        "a.c.rate": "c.rate",
        "a.size": "a.size",
        "size": "size",
    }


def test_a_parameter_with_one_value_is_no_axis():
    axes = build_axes([{"same": 1, "other": 1}, {"same": 1, "other": 2}], {})
    assert [axis.name for axis in axes] == ["other"]


def test_numbers_are_placed_as_they_were_drawn():
    (axis,) = build_axes([{"rate": 1e-3}, {"rate": 2e-3}], LOG)
    assert (axis.is_log, axis.lower, axis.upper) == (True, 1e-4, 1e-2)
    assert axis.fraction(axis.place(1e-3)) == pytest.approx(0.5)


def test_values_that_a_scheduler_moved_out_of_bounds_widen_the_axis():
    (axis,) = build_axes([{"rate": 1e-3}, {"rate": 5e-2}], LOG)
    assert axis.upper == 5e-2


def test_integers_end_before_their_upper_bound():
    space = {"n": {"kind": "int", "lower": 1, "upper": 6, "log": False}}
    (axis,) = build_axes([{"n": 2}, {"n": 3}], space)
    assert (axis.lower, axis.upper) == (1, 5)


def test_choices_are_categories_numbers_by_size_others_as_written():
    space = {
        "size": {"kind": "choice", "choices": [128, 32, 64]},
        "kind": {"kind": "choice", "choices": ["linear", "exp", "unused"]},
    }
    trials = [{"size": 128, "kind": "exp"}, {"size": 32, "kind": "linear"}]
    size, kind = build_axes(trials, space)
    assert list(size.categories.values()) == ["32", "128"]
    assert list(kind.categories.values()) == ["linear", "exp"]
    assert kind.place("exp") == 1
    assert kind.place("unused") is None


def test_values_of_mixed_types_are_categories_that_look_different():
    (axis,) = build_axes([{"x": value} for value in (1, "1", True, None, [1, 2])], {})
    assert sorted(axis.categories.values()) == ["'1'", "1", "None", "True", "[1, 2]"]
    places = [axis.place(value) for value in (1, "1", True, None, [1, 2])]
    assert len(set(places)) == 5


def test_the_spread_is_the_same_each_time_and_within_a_category():
    (axis,) = build_axes([{"x": "a"}, {"x": "b"}], {})
    shifts = [spread(index) for index in range(100)]
    assert shifts == [spread(index) for index in range(100)]
    assert all(0 < axis.fraction(0, shift) < 0.5 for shift in shifts)
