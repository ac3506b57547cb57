"""Checking a space against the config it is for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from ray import tune

from ditk_ray import when
from ditk_ray.config.engine_config import EngineConfig
from ditk_ray.config.space import build_space
from ditk_ray.config.space_check import KnownPaths, check_space
from ditk_ray.errors import Problem
from ditk_ray.util import dotted

CONFIG = EngineConfig(
    {
        "exp_name": "x",
        "policy": {
            "cuda": False,
            "nstep": 1,
            "discount_factor": 0.97,
            "model": {"sizes": [128, 64], "kernel": (3, 5), "dueling": True, "act": "relu"},
            "learn": {"batch_size": 64, "learning_rate": 0.001, "whole": 1},
        },
    },
    {"env": {"type": "cartpole"}, "policy": {"type": "dqn"}},
)
DEFAULTS = EngineConfig(
    {
        "policy": {
            "priority": False,
            "noise": None,
            "learn": {"target_update_freq": 100, "ignore_done": False, "whole": 1.0},
        },
        "env": {"manager": {"retry_type": "reset"}},
    },
    {"env_manager": {"type": "base"}},
)
KNOWN = KnownPaths(CONFIG, DEFAULTS)


def problems(space: dict[str, Any], create_space: dict[str, Any] | None = None) -> list[Problem]:
    return check_space(build_space(space, create_space), KNOWN)


def one_problem(space: dict[str, Any], create_space: dict[str, Any] | None = None) -> Problem:
    (problem,) = problems(space, create_space)
    return problem


def test_a_right_space_has_no_problems():
    space = {
        "policy": {
            "nstep": tune.choice([1, 3]),
            "discount_factor": tune.uniform(0.9, 0.99),
            "model.sizes": tune.grid_search([[64], [128, 128]]),
            "learn": {"batch_size": tune.lograndint(16, 256)},
        }
    }

    assert problems(space, {"policy.type": tune.choice(["dqn", "rainbow"])}) == []


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("policy.learn.batchsize", "policy.learn.batch_size"),
        ("policy.lern.batch_size", "policy.learn.batch_size"),
        ("policy.discount", "policy.discount_factor"),
        ("policy.learn.target_update_frq", "policy.learn.target_update_freq"),
    ],
)
def test_an_unknown_path_names_the_nearest_existing_one(wrong, right):
    problem = one_problem({wrong: tune.randint(1, 9)})

    assert problem.where == wrong
    assert f"did you mean {right!r}?" in problem.hint
    assert f"'+{wrong}'" in problem.hint


@pytest.mark.parametrize("wrong", ["policy.batch_size", "batch_size", "learn.batch_size"])
def test_a_right_name_in_the_wrong_place_names_the_right_place(wrong):
    assert "'policy.learn.batch_size'" in one_problem({wrong: tune.randint(1, 9)}).hint


def test_an_unknown_path_of_create_config_is_found_there():
    problem = one_problem({}, {"policy.typ": tune.choice(["dqn"])})

    assert problem.where == "create_config.policy.typ"
    assert "'create_config.policy.type'" in problem.hint


def test_a_path_like_no_other_gets_no_far_fetched_suggestion():
    problem = one_problem({"zzzz.qqqq": 1})

    assert "did you mean" not in problem.hint
    assert "+zzzz.qqqq" in problem.hint


def test_all_unknown_paths_are_listed_at_once():
    found = problems({"policy.nstp": 1, "polic.nstep": 1, "policy.nstep": 1})

    assert [item.where for item in found] == ["policy.nstp", "polic.nstep"]


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("policy.priority", True),
        ("policy.learn.target_update_freq", tune.randint(1, 9)),
        ("env.manager.retry_type", tune.choice(["reset", "renew"])),
    ],
)
def test_a_path_that_only_the_defaults_have_is_right(path, value):
    assert problems({path: value}) == []


def test_a_plus_says_that_a_path_is_new_on_purpose():
    assert problems({"+policy.fresh.thing": tune.uniform(0, 1)}) == []


def test_a_typo_in_an_override_is_found_too():
    space = build_space({}, overrides={"policy.learn.batch_sise": 3})

    (problem,) = check_space(space, KNOWN)

    assert "'policy.learn.batch_size'" in problem.hint


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("policy.learn.batch_size", tune.uniform(16, 64)),
        ("policy.learn.batch_size", tune.quniform(16, 64, 16)),
        ("policy.learn.batch_size", 64.0),
        ("policy.learn.batch_size", tune.choice([32, "64"])),
        ("policy.learn.batch_size", tune.grid_search([32, True])),
        ("policy.learn.batch_size", [64]),
        ("policy.learn.batch_size", tune.choice([{"of": 64}])),
        ("policy.learn.learning_rate", "1e-3"),
        ("policy.learn.learning_rate", True),
        ("policy.cuda", 1),
        ("policy.cuda", "false"),
        ("policy.cuda", tune.randint(0, 2)),
        ("policy.model.sizes", 128),
        ("policy.model.sizes", tune.choice([[64], 64])),
        ("policy.model.act", 3),
        ("policy.model.act", tune.uniform(0, 1)),
        ("policy.model", "big"),
        ("policy.model", [128]),
        ("policy.learn.ignore_done", 0),
    ],
)
def test_a_value_of_another_type_is_refused(path, value):
    problem = one_problem({path: value})

    assert problem.where == path
    assert "where the config has the" in problem.what


def test_a_type_that_does_not_fit_is_shown_with_both_values():
    problem = one_problem({"policy.model.act": tune.choice(["relu", 3])})

    assert problem.what == "the int 3 where the config has the str 'relu'"


def test_a_fraction_for_a_whole_number_names_the_domains_that_fit():
    problem = one_problem({"policy.learn.batch_size": tune.loguniform(16, 64)})

    assert "tune.randint" in problem.hint
    assert "64.0" in problem.hint


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("policy.learn.learning_rate", 1),
        ("policy.discount_factor", tune.randint(0, 2)),
        ("policy.learn.whole", tune.uniform(0, 1)),
        ("policy.learn.batch_size", None),
        ("policy.learn.batch_size", tune.choice([None, 64])),
        ("policy.noise", 0.1),
        ("policy.noise", tune.choice(["ou", {"sigma": 1}])),
        ("policy.noise.sigma", tune.uniform(0, 1)),
        ("policy.model.sizes", (1, 2)),
        ("policy.model.kernel", [1, 2]),
        ("policy.model.sizes.0", tune.randint(16, 64)),
        ("policy.model.sizes", [tune.choice([1, 2]), 3, 4, 5]),
        ("policy.learn.batch_size", tune.choice([np.int64(32), np.int64(64)])),
        ("policy.learn.learning_rate", tune.choice([np.float32(0.5), np.int64(1)])),
    ],
)
def test_a_value_that_can_stand_there_is_right(path, value):
    assert problems({path: value}) == []


@pytest.mark.parametrize(
    ("path", "value"),
    [("policy.noise.sigma", 0.1), ("policy.model.kernel.1", 7), ("policy.model.sizes.0", 16)],
)
def test_what_the_check_lets_through_can_be_laid_on_the_config(path, value):
    space = build_space({path: value})
    whole = EngineConfig({"policy": {**CONFIG.main["policy"], "noise": None}}, {})

    assert check_space(space, KnownPaths(whole, DEFAULTS)) == []
    assert dotted.get(whole.overlaid(space.sample({})[0]).main, path) == value


def test_an_item_of_a_list_is_checked_against_the_item():
    assert "the str 'wide'" in one_problem({"policy.model.sizes.1": tune.choice(["wide"])}).what


def test_dicts_to_choose_from_are_checked_key_by_key():
    models = [{"sizes": [64], "act": "tanh"}, {"sizes": 64, "actt": "relu"}]

    found = problems({"policy.model": tune.choice(models)})

    assert [item.where for item in found] == ["policy.model.sizes", "policy.model.actt"]
    assert "'policy.model.act'" in found[1].hint


def test_a_new_key_in_a_dict_to_choose_from_needs_a_plus_on_the_parameter():
    assert problems({"+policy.model": tune.choice([{"anything": 1}])}) == []


def test_a_conditional_domain_is_checked_as_any_other():
    space = {"policy.cuda": tune.choice([True]), "policy.nstep": when("policy.cuda", True, 0.5)}

    assert one_problem(space).where == "policy.nstep"


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda c: 1 / 0, "division by zero"),
        (lambda c: c.policy.learn.batch_sise, "'policy.learn.batch_sise'"),
        (lambda c: c["policy.nothing"], "'policy.nothing'"),
        (lambda c: {"a": 1}[c.policy.nstep], "KeyError: 3"),
        (lambda c: c.policy.nstep.nothing, "no attribute 'nothing'"),
    ],
)
def test_a_sample_from_that_fails_is_found_before_anything_runs(function, message):
    space = {
        "policy.nstep": tune.choice([3]),
        "policy.learn.batch_size": tune.sample_from(function),
    }

    problem = one_problem(space)

    assert problem.where == "policy.learn.batch_size"
    assert message in problem.what


def test_only_the_sample_from_that_fails_is_blamed():
    space = {
        "policy.nstep": tune.sample_from(lambda: 1),
        "policy.learn.batch_size": tune.sample_from(lambda: 1 / 0),
    }

    assert one_problem(space).where == "policy.learn.batch_size"


def test_functions_that_wait_for_each_other_are_found():
    space = {
        "policy.nstep": tune.sample_from(lambda c: c.policy.learn.batch_size),
        "policy.learn.batch_size": tune.sample_from(lambda c: c.policy.nstep),
    }

    assert "not drawn yet" in one_problem(space).what


@pytest.mark.parametrize("value", [0.5, "64", True, [64]])
def test_a_sample_from_that_yields_a_wrong_type_is_found(value):
    problem = one_problem({"policy.learn.batch_size": tune.sample_from(lambda: value)})

    assert problem.where == "policy.learn.batch_size"
    assert "where the config has the int 64" in problem.what


def test_a_sample_from_that_is_right_is_let_through():
    space = {
        "policy.nstep": tune.randint(1, 3),
        "policy.learn.batch_size": tune.sample_from(lambda c: c.policy.nstep * 32),
    }

    assert problems(space) == []


def test_a_sample_from_for_a_new_key_may_yield_anything():
    assert problems({"+policy.fresh": tune.sample_from(lambda: object())}) == []
