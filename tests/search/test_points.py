"""A grid made of any space."""

from __future__ import annotations

import pytest
from ray import tune

from ditk_ray.config.space import build_space, when
from ditk_ray.errors import BadConfigError
from ditk_ray.search.points import count_trials, grid_space


def grid(domain, count=3):
    (item,) = grid_space(build_space({"a": domain}), count).parameters
    return item.domain["grid_search"]


@pytest.mark.parametrize(
    ("domain", "values"),
    [
        (tune.uniform(0.0, 1.0), [0.0, 0.5, 1.0]),
        (tune.loguniform(1e-4, 1e-2), [1e-4, 1e-3, 1e-2]),
        (tune.quniform(0.0, 1.0, 0.25), [0.0, 0.5, 1.0]),
        (tune.randint(0, 11), [0, 5, 10]),
        (tune.randint(3, 5), [3, 4]),
        (tune.lograndint(10, 1001), [10, 100, 1000]),
        (tune.qrandint(8, 64, 8), [8, 32, 64]),
        (tune.choice(["a", [1], None]), ["a", [1], None]),
        (tune.grid_search([4, 2]), [4, 2]),
    ],
)
def test_every_domain_becomes_a_few_values_on_its_own_scale(domain, values):
    is_number = isinstance(values[0], float)
    assert grid(domain) == (pytest.approx(values) if is_number else values)
    assert [type(value) for value in grid(domain)] == [type(value) for value in values]


def test_a_normal_distribution_becomes_values_that_are_equally_likely():
    low, middle, high = grid(tune.randn(10, 2))
    assert middle == pytest.approx(10)
    assert (10 - low, high - 10) == pytest.approx((1.935, 1.935), abs=0.01)


def test_the_number_of_points_can_be_chosen():
    assert grid(tune.uniform(0.0, 1.0), 5) == pytest.approx([0, 0.25, 0.5, 0.75, 1])
    assert grid(tune.uniform(0.0, 1.0), 1) == [0.5]
    with pytest.raises(BadConfigError, match="has to be 1 or more"):
        grid(tune.uniform(0.0, 1.0), 0)


def test_plain_values_and_functions_stay_as_they_are():
    space = build_space({"a": 3, "b": tune.sample_from(lambda config: 1)})
    assert grid_space(space) == space


def test_conditional_parameters_are_refused():
    space = build_space({"a": tune.choice([1, 2]), "b": when("a", 1, tune.uniform(0, 1))})
    with pytest.raises(BadConfigError, match=r"b: depends on another.*\n.*'random'"):
        grid_space(space)


def test_known_points_come_on_top_of_a_grid_with_all_that_they_leave_open():
    space = build_space({"a": tune.grid_search([1, 2]), "b": tune.grid_search([1, 2, 3])})
    assert count_trials(space, 2) == 2 * 6
    assert count_trials(space, 2, [{"a": 1, "b": 2}, {"a": 2}]) == 2 * 6 + 1 + 3


def test_without_a_grid_known_points_are_among_the_samples():
    space = build_space({"a": tune.uniform(0, 1)})
    assert count_trials(space, 5, [{"a": 0.5}]) == 5
