from __future__ import annotations

import json

import pytest
from ray import tune

from ditk_ray import when
from ditk_ray.config.jsonable import json_text
from ditk_ray.config.parameter_text import show_description
from ditk_ray.config.space import build_space
from ditk_ray.config.space_description import describe_space

KINDS = {
    "uniform": (
        tune.uniform(0, 1),
        {"kind": "float", "lower": 0, "upper": 1, "log": False},
        "float, uniform, 0 to 1",
    ),
    "loguniform": (
        tune.loguniform(1e-4, 1),
        {"kind": "float", "lower": 1e-4, "upper": 1, "log": True},
        "float, loguniform, 0.0001 to 1",
    ),
    "quniform": (
        tune.quniform(0, 1, 0.25),
        {"kind": "float", "lower": 0, "upper": 1, "log": False, "step": 0.25},
        "float, uniform, 0 to 1 in steps of 0.25",
    ),
    "randint": (
        tune.randint(3, 9),
        {"kind": "int", "lower": 3, "upper": 9, "log": False},
        "int, uniform, 3 to 9",
    ),
    "qlograndint": (
        tune.qlograndint(1, 100, 5),
        {"kind": "int", "lower": 1, "upper": 100, "log": True, "step": 5},
        "int, loguniform, 1 to 100 in steps of 5",
    ),
    "randn": (
        tune.randn(1, 2),
        {"kind": "float", "mean": 1, "sd": 2},
        "float, normal, 1 ± 2",
    ),
    "choice": (
        tune.choice(["a", [64, 64]]),
        {"kind": "choice", "choices": ["a", [64, 64]]},
        "choice ['a', [64, 64]]",
    ),
    "grid": (
        tune.grid_search([1, 2]),
        {"kind": "grid", "choices": [1, 2]},
        "grid [1, 2]",
    ),
    "function": (tune.sample_from(lambda config: 1), {"kind": "function"}, "a function"),
    "value": ("adam", {"kind": "fixed", "value": "adam"}, "always 'adam'"),
}


@pytest.mark.parametrize("name", KINDS)
def test_a_parameter_is_described_as_data_and_in_words(name):
    domain, data, words = KINDS[name]

    (description,) = describe_space(build_space({"policy.x": domain})).values()

    assert description == data
    assert show_description(description) == words
    assert json.loads(json_text(description)) == data


def test_a_conditional_parameter_says_when_it_counts():
    space = build_space(
        {
            "eps.type": tune.choice(["exp", "linear"]),
            "eps.decay": when("eps.type", {"linear", "exp"}, tune.randint(1, 5)),
        }
    )

    assert describe_space(space)["eps.decay"]["when"] == [
        {"parent": "eps.type", "is": ["exp", "linear"]}
    ]
