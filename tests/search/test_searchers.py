"""Searchers by name: what they suggest, and what is refused before anything starts."""

from __future__ import annotations

import math
import statistics
import subprocess
import sys

import pytest
from ray import tune

from ditk_ray.config.space import build_space
from ditk_ray.errors import BadConfigError
from ditk_ray.search.points import refusal
from ditk_ray.search.searchers import SEARCHERS, build_searcher
from tests.search.spaces import OBJECTIVE, RATE, asked, distance, every_kind, only_rate

MODELS = [name for name, offer in SEARCHERS.items() if offer.module is not None]
SEVERAL = (("eval_value", "max"), ("time", "min"))


def build(name, space=None, objectives=OBJECTIVE, options=(), points=(), seed=1, samples=24):
    return build_searcher(
        name, dict(options), space or every_kind(), objectives, seed, points, samples
    )


@pytest.mark.parametrize("name", MODELS)
def test_a_searcher_suggests_points_of_the_space_in_pythons_own_types(name):
    space = every_kind()
    for point in asked(build(name, space), 6):
        assert set(point) == {item.name for item in space.parameters}
        for item in space.parameters:
            value = point[item.name]
            assert refusal(item, value) is None
            assert type(value) in (int, float, str, bool, list)


@pytest.mark.parametrize("name", MODELS)
def test_a_searcher_finds_the_good_region_better_than_chance(name):
    # A genetic algorithm needs generations, and more than one gene; Ax takes a second for
    # each suggestion.
    count = {"nsga2": 120, "ax": 12}.get(name, 24)
    space = every_kind() if name == "nsga2" else only_rate()
    points = asked(build(name, space, samples=count), count)
    late = statistics.median(distance(point) for point in points[count // 2 :])
    assert late < 0.7, "drawn at random it would be 1"


@pytest.mark.parametrize("name", MODELS)
def test_the_same_seed_suggests_the_same_and_another_seed_does_not(name):
    first, again, other = (asked(build(name, seed=seed), 3, told=0) for seed in (1, 1, 2))
    assert first == again
    assert first != other


@pytest.mark.parametrize("name", MODELS)
def test_what_a_searcher_learned_can_be_saved_and_gone_on_from(name, tmp_path):
    first, second = build(name, only_rate()), build(name, only_rate())
    asked(first, 8)
    first.save(str(tmp_path / "state"))
    second.restore(str(tmp_path / "state"))
    assert first.suggest("next") == second.suggest("next")


@pytest.mark.parametrize("name", MODELS)
def test_trials_that_fail_or_have_no_score_do_not_disturb_a_searcher(name):
    searcher = build(name, only_rate())
    for number in range(12):
        trial = f"trial_{number}"
        searcher.suggest(trial)
        if number % 3 == 0:
            searcher.on_trial_complete(trial, error=True)
        elif number % 3 == 1:
            searcher.on_trial_result(trial, {"training_iteration": 1})
            searcher.on_trial_complete(trial, {"eval_value": math.nan})
        else:
            searcher.on_trial_complete(trial, {"eval_value": 1.0, "training_iteration": 1})


@pytest.mark.parametrize("name", MODELS)
def test_known_points_come_first_and_what_they_leave_out_is_drawn(name):
    known = {"policy": {"learn": {"batch_size": 64}, "priority": False}, RATE: 1e-3}
    networks = {"policy.model.encoder_hidden_size_list": [128]}
    first, second = asked(build(name, points=[known, networks]), 2)
    assert first[RATE] == pytest.approx(1e-3)
    assert (first["policy.learn.batch_size"], first["policy.priority"]) == (64, False)
    assert second["policy.model.encoder_hidden_size_list"] == [128]
    assert 0.9 <= first["policy.discount_factor"] <= 0.999


@pytest.mark.parametrize("name", ["random", "grid"])
def test_what_needs_no_model_is_left_to_the_sweep(name):
    assert build(name) is None


@pytest.mark.parametrize("name", MODELS)
def test_several_objectives_are_taken_or_refused_with_those_that_take_them(name):
    if SEARCHERS[name].has_many_objectives:
        searcher = build(name, only_rate(), SEVERAL)
        for number in range(8):
            searcher.suggest(str(number))
            result = {"eval_value": 1.0, "time": number, "training_iteration": 1}
            searcher.on_trial_result(str(number), result)
            searcher.on_trial_complete(str(number), result)
        return
    with pytest.raises(BadConfigError, match=r"one objective, not 2\n.*random, grid, tpe, gp"):
        build(name, only_rate(), SEVERAL)


@pytest.mark.parametrize("name", MODELS)
def test_domains_that_no_model_is_made_of_are_all_named(name):
    space = build_space(
        {
            "a": tune.grid_search([1, 2]),
            "b": tune.sample_from(lambda config: 1),
            "c": tune.randn(0, 1),
            "d": tune.uniform(0, 1),
        }
    )
    with pytest.raises(BadConfigError) as refused:
        build(name, space)
    assert [problem.where for problem in refused.value.problems] == ["a", "b", "c"]
    assert "tune.choice" in str(refused.value)


def test_a_space_in_which_nothing_varies_is_refused():
    with pytest.raises(BadConfigError, match="nothing varies"):
        build("tpe", build_space({"a": tune.choice([1]), "b": 3}))


@pytest.mark.parametrize("name", MODELS)
def test_settings_that_a_searcher_does_not_have_are_all_named(name):
    with pytest.raises(BadConfigError) as refused:
        build(name, options={"surely_not": 1, "nor_this": 2})
    where = [problem.where for problem in refused.value.problems]
    assert where == ["searcher_options.surely_not", "searcher_options.nor_this"]


@pytest.mark.parametrize(
    ("name", "option", "value"),
    [
        ("tpe", "n_startup_trials", 2),
        ("cmaes", "n_startup_trials", 2),
        ("gp", "n_startup_trials", 3),
        ("nsga2", "population_size", 6),
        ("hyperopt", "gamma", 0.3),
        ("bohb", "min_points_in_model", 4),
        ("nevergrad", "optimizer", "OnePlusOne"),
        ("ax", "num_initialization_trials", 3),
    ],
)
def test_settings_reach_the_searcher(name, option, value):
    assert len(asked(build(name, only_rate(), options={option: value}), 4)) == 4


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("tpe", {"n_startup": 3}, "did you mean 'n_startup_trials'"),
        ("tpe", {"n_startup_trials": "ten"}, r"is 'ten'; it has to be: int"),
        ("tpe", {"multivariate": 1}, "is 1; it has to be: bool"),
        ("nsga2", {"population_size": 1}, "refuses: "),
        ("nevergrad", {"optimizer": "OnePlusTow"}, "did you mean 'OnePlusOne'"),
        ("nevergrad", {"optimizer": "Cobyla"}, "several trials at once"),
        ("grid", {"points_per_rang": 3}, "did you mean 'points_per_range'"),
        ("random", {"seed": 3}, "it has no settings"),
    ],
)
def test_a_wrong_setting_is_refused_with_what_would_be_right(name, options, message):
    with pytest.raises(BadConfigError, match=message):
        build(name, options=options)


def test_an_unknown_searcher_suggests_the_nearest():
    with pytest.raises(BadConfigError, match=r"there is no 'tpee'\n.*did you mean 'tpe'"):
        build("tpee")


def test_a_package_that_is_not_installed_says_which_extra_brings_it():
    code = (
        "import sys; sys.modules['hyperopt'] = None\n"
        "from ditk_ray.search.searchers import known_searcher\n"
        "known_searcher('hyperopt')"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "needs the package hyperopt, which is not installed" in shown.stderr
    assert "pip install 'ditk-ray[hyperopt]'" in shown.stderr


@pytest.mark.parametrize(
    ("point", "message"),
    [
        ({"policy.learn.learning_rat": 1}, "did you mean 'policy.learn.learning_rate'"),
        ({RATE: 1.0}, "1.0 lies outside 1e-05 to 0.1"),
        ({RATE: "high"}, "'high' is not a number"),
        ({"policy": {"nstep": 2.5}}, "2.5 is not a whole number"),
        ({"policy.nstep": 6}, "6 lies outside 1 to 5"),
        ({"policy.learn.batch_size": 65}, "65 is not a multiple of 32"),
        ({"policy.other.eps.type": "log"}, r"'log' is not one of \['exp', 'linear'\]"),
        (3, "is 3; it has to be a dict"),
    ],
)
def test_a_known_point_outside_the_space_is_refused_with_its_path(point, message):
    with pytest.raises(BadConfigError, match=rf"known_points\[1\].*(\n.*)?{message}"):
        build("tpe", points=[{}, point])


def test_a_known_point_may_not_set_what_is_the_same_in_every_trial():
    space = build_space({"a": tune.uniform(0, 1), "b": 3})
    with pytest.raises(BadConfigError, match=r"known_points\[0\].b: is the same in every trial"):
        build("random", space, points=[{"b": 3}])
