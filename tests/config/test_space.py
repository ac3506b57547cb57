"""Search spaces: what a user may write, and what a trial gets of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ray import tune
from ray.tune.experiment import Experiment
from ray.tune.registry import register_trainable
from ray.tune.search import BasicVariantGenerator
from ray.tune.search.variant_generator import generate_variants

from ditk_ray import when
from ditk_ray.config.engine_config import EngineConfig
from ditk_ray.config.space import SearchSpace, build_space, describe_space
from ditk_ray.config.terms import show_description
from ditk_ray.errors import BadConfigError
from ditk_ray.util.plain import json_text


def variants(space: SearchSpace) -> list[dict[str, Any]]:
    """Draw the way Tune's own generator does: the space is the `config` of a spec."""
    return [spec["config"] for _, spec in generate_variants({"config": space.tune_space()})]


def trial_config(space: SearchSpace, **drawn: Any) -> dict[str, Any]:
    """Return the main config of a trial, laid on an empty one."""
    values = {name.replace("__", "."): value for name, value in drawn.items()}
    return EngineConfig({}, {}).overlaid(*space.sample(values or variants(space)[0])).main


def complaint(*arguments: Any) -> str:
    with pytest.raises(BadConfigError) as caught:
        build_space(*arguments)
    return str(caught.value)


LR = tune.loguniform(1e-4, 1e-2)
SIZE = tune.choice([32, 64])


@pytest.mark.parametrize(
    "written",
    [
        {"policy": {"learn": {"lr": LR, "size": SIZE}}},
        {"policy.learn.lr": LR, "policy.learn.size": SIZE},
        {"policy": {"learn.lr": LR}, "policy.learn": {"size": SIZE}},
    ],
    ids=["nested", "dotted", "mixed"],
)
def test_nested_and_dotted_spaces_are_the_same(written):
    assert build_space(written).tune_space() == {"policy.learn.lr": LR, "policy.learn.size": SIZE}


def test_an_empty_space_has_nothing_to_draw():
    space = build_space({})

    assert space.parameters == ()
    assert trial_config(space) == {}


def test_plain_values_are_set_in_every_trial_and_not_drawn():
    space = build_space({"policy": {"nstep": 3, "sizes": [1, 2], "lr": LR}})

    assert list(space.tune_space()) == ["policy.lr"]
    assert trial_config(space, policy__lr=0.1) == {
        "policy": {"nstep": 3, "sizes": [1, 2], "lr": 0.1}
    }


def test_a_grid_goes_through_all_its_values():
    space = build_space({"a.b": tune.grid_search([1, 2]), "c": tune.grid_search(["x", "y"])})

    drawn = sorted((one["a.b"], one["c"]) for one in variants(space))

    assert drawn == [(1, "x"), (1, "y"), (2, "x"), (2, "y")]


def test_a_choice_of_dicts_stays_one_parameter():
    models = [{"sizes": [64]}, {"sizes": [128, 128]}]
    space = build_space({"policy.model": tune.choice(models)})

    assert list(space.tune_space()) == ["policy.model"]
    assert trial_config(space)["policy"]["model"] in models


def test_domains_inside_a_list_are_drawn_in_their_place():
    space = build_space({"sizes": [128, tune.choice([32, 64]), 16]})

    assert list(space.tune_space()) == ["sizes.1"]
    assert trial_config(space)["sizes"] in ([128, 32, 16], [128, 64, 16])


def test_domains_deep_inside_lists_are_drawn_in_their_place():
    space = build_space({"layers": [{"width": SIZE, "act": "relu"}, [1, tune.choice([7])]]})

    config = trial_config(space, layers__0__width=64, layers__1__1=7)

    assert config == {"layers": [{"width": 64, "act": "relu"}, [1, 7]]}


def test_a_list_with_domains_replaces_the_list_of_the_config():
    space = build_space({"sizes": [tune.choice([5]), 6]})
    base = EngineConfig({"sizes": [128, 128, 64]}, {})

    main, _ = space.sample({"sizes.0": 5})

    assert base.overlaid(main).main == {"sizes": [5, 6]}
    assert base.main == {"sizes": [128, 128, 64]}


def test_two_trials_do_not_share_a_list():
    space = build_space({"sizes": [tune.choice([1, 2]), 6]})

    first = trial_config(space, sizes__0=1)
    second = trial_config(space, sizes__0=2)

    assert (first, second) == ({"sizes": [1, 6]}, {"sizes": [2, 6]})


def test_create_config_has_a_space_of_its_own():
    space = build_space({"a": 1}, {"policy": {"type": tune.choice(["dqn"])}})

    main, create = space.sample(variants(space)[0])

    assert list(space.tune_space()) == ["create_config.policy.type"]
    assert main == {"a": 1}
    assert create == {"policy.type": "dqn"}


@pytest.mark.parametrize(
    "function",
    [
        lambda c: c["policy"]["learn"]["size"] * 2,
        lambda c: c.policy.learn.size * 2,
        lambda c: c["policy.learn.size"] * 2,
        lambda c: c.policy["learn.size"] * 2,
    ],
    ids=["nested", "attributes", "dotted", "mixed"],
)
def test_sample_from_sees_other_drawn_values(function):
    space = build_space(
        {"policy.learn.double": tune.sample_from(function), "policy.learn.size": SIZE}
    )

    for drawn in variants(space):
        assert drawn["policy.learn.double"] == drawn["policy.learn.size"] * 2


def test_sample_from_sees_drawn_values_in_a_trial_that_tune_makes(tmp_path: Path):
    class Nothing(tune.Trainable):
        pass

    register_trainable("Nothing", Nothing)
    space = build_space(
        {"policy": {"size": SIZE, "double": tune.sample_from(lambda c: c.policy.size * 2)}}
    )
    search = BasicVariantGenerator()
    search.add_configurations(
        [Experiment("x", "Nothing", config=space.tune_space(), storage_path=str(tmp_path))]
    )

    drawn = search.next_trial().config

    assert drawn["policy.double"] == drawn["policy.size"] * 2


def test_sample_from_sees_the_grid_and_other_functions_whatever_the_order():
    space = build_space(
        {
            "c": tune.sample_from(lambda c: c.b + 1),
            "b": tune.sample_from(lambda c: c.a * 10),
            "a": tune.grid_search([1, 2]),
        }
    )

    assert sorted((one["a"], one["b"], one["c"]) for one in variants(space)) == [
        (1, 10, 11),
        (2, 20, 21),
    ]


def test_sample_from_without_an_argument_is_just_called():
    assert variants(build_space({"a": tune.sample_from(lambda: 5)})) == [{"a": 5}]


def test_sample_from_sees_plain_values_of_the_space():
    space = build_space({"a": 21, "b": tune.sample_from(lambda c: c.a * 2), "c": SIZE})

    assert variants(space)[0]["b"] == 42


def test_sample_from_sees_an_override_of_the_value_it_depends_on():
    written = {"policy.size": SIZE, "double": tune.sample_from(lambda c: c.policy.size * 2)}

    space = build_space(written, overrides={"policy.size": 500})

    assert variants(space)[0]["double"] == 1000


@pytest.mark.parametrize(
    ("wanted", "value", "exists"),
    [
        ("adam", "adam", True),
        ("adam", "sgd", False),
        (["adam", "rmsprop"], "rmsprop", True),
        (["adam", "rmsprop"], "sgd", False),
        (lambda name: name.startswith("a"), "adam", True),
        (lambda name: name.startswith("a"), "sgd", False),
    ],
)
def test_a_conditional_parameter_exists_while_its_parent_fits(wanted, value, exists):
    space = build_space(
        {"optim": tune.choice(["adam", "sgd", "rmsprop"]), "beta": when("optim", wanted, LR)}
    )
    drawn = {"optim": value, "beta": 0.9}

    assert ("beta" in space.active(drawn)) is exists
    assert ("beta" in space.sample(drawn)[0]) is exists
    assert space.sample(drawn)[0]["optim"] == value


def test_a_conditional_dict_makes_all_its_parameters_conditional():
    space = build_space(
        {
            "optim": tune.choice(["adam", "sgd"]),
            "adam": when("optim", "adam", {"beta": LR, "eps": 1e-8}),
        }
    )

    assert trial_config(space, optim="sgd", adam__beta=0.9) == {"optim": "sgd"}
    assert trial_config(space, optim="adam", adam__beta=0.9) == {
        "optim": "adam",
        "adam": {"beta": 0.9, "eps": 1e-8},
    }


CHAIN = {
    "a": tune.choice([1, 2]),
    "b": when("a", 1, tune.choice([1, 2])),
    "c": when("b", 1, tune.choice([5])),
}


@pytest.mark.parametrize(
    ("a", "b", "names"), [(1, 1, ["a", "b", "c"]), (1, 2, ["a", "b"]), (2, 1, ["a"])]
)
def test_a_chain_of_conditions_breaks_at_the_first_that_does_not_hold(a, b, names):
    assert list(build_space(CHAIN).active({"a": a, "b": b, "c": 5})) == names


@pytest.mark.parametrize(("a", "b", "exists"), [(1, 1, True), (1, 2, False), (2, 1, False)])
def test_a_condition_inside_a_condition_needs_both(a, b, exists):
    space = build_space(
        {
            "a": tune.choice([1, 2]),
            "b": tune.choice([1, 2]),
            "group": when("a", 1, {"c": when("b", 1, LR)}),
        }
    )

    assert ("group.c" in space.active({"a": a, "b": b, "group.c": 0.1})) is exists


@pytest.mark.parametrize(("fixed", "exists"), [("adam", True), ("sgd", False)])
def test_a_parent_fixed_by_an_override_decides_for_its_children(fixed, exists):
    written = {"optim": tune.choice(["adam", "sgd"]), "beta": when("optim", "adam", LR)}

    space = build_space(written, overrides={"optim": fixed})

    assert list(space.tune_space()) == ["beta"]
    assert space.sample({"beta": 0.9})[0] == {
        "optim": fixed,
        **({"beta": 0.9} if exists else {}),
    }


def test_a_parent_may_be_a_plain_value_of_the_space():
    space = build_space({"optim": "sgd", "beta": when("optim", "adam", LR)})

    assert space.active({"beta": 0.9}) == {}


def test_a_condition_may_depend_on_create_config():
    space = build_space(
        {"eps": when("create_config.policy.type", "dqn", LR)},
        {"policy.type": tune.choice(["dqn", "sac"])},
    )

    assert "eps" in space.active({"create_config.policy.type": "dqn", "eps": 0.1})
    assert "eps" not in space.active({"create_config.policy.type": "sac", "eps": 0.1})


@pytest.mark.parametrize(("parent", "said"), [("nothing", "'nothing'"), ("beta", "itself")])
def test_a_condition_on_no_other_parameter_is_refused(parent, said):
    text = complaint({"optim": SIZE, "beta": when(parent, 1, LR)})

    assert f"beta: depends on {said}" in text


def test_conditions_in_a_circle_are_refused():
    text = complaint({"a": when("b", 1, tune.choice([1])), "b": when("a", 1, tune.choice([1]))})

    assert "depends on itself: " in text
    assert {"a", "b"} <= set(text.split())


def test_a_grid_inside_a_condition_is_refused():
    text = complaint({"a": SIZE, "b": when("a", 32, tune.grid_search([1, 2]))})

    assert "b: grid_search inside when()" in text


def test_a_key_with_a_plus_is_new_and_its_name_has_no_plus():
    space = build_space({"+top": 1, "policy": {"+fresh": SIZE, "+group": {"x": LR}, "old": LR}})

    assert {item.name: item.is_new for item in space.parameters} == {
        "top": True,
        "policy.fresh": True,
        "policy.group.x": True,
        "policy.old": False,
    }


def test_an_override_replaces_a_domain():
    space = build_space({"policy": {"lr": LR, "size": SIZE}}, overrides={"policy.lr": 0.5})

    assert list(space.tune_space()) == ["policy.size"]
    assert trial_config(space, policy__size=32) == {"policy": {"lr": 0.5, "size": 32}}


def test_an_override_replaces_all_that_is_below_it():
    space = build_space({"policy": {"sizes": [SIZE, SIZE]}}, overrides={"policy.sizes": [1]})

    assert space.tune_space() == {}
    assert trial_config(space) == {"policy": {"sizes": [1]}}


def test_an_override_replaces_no_neighbour_whose_name_begins_alike():
    space = build_space({"lr": LR, "lr_decay": LR}, overrides={"lr": 1})

    assert list(space.tune_space()) == ["lr_decay"]


def test_an_override_goes_into_a_drawn_dict():
    space = build_space({"model": tune.choice([{"a": 1, "b": 2}])}, overrides={"model.a": 9})

    assert trial_config(space) == {"model": {"a": 9, "b": 2}}


def test_an_override_with_a_plus_adds_a_new_key():
    (parameter,) = build_space({}, overrides={"+policy.fresh": 1}).parameters

    assert (parameter.name, parameter.is_new) == ("policy.fresh", True)


def test_an_override_of_create_config_is_laid_on_it():
    space = build_space({}, {"policy.type": SIZE}, {"create_config.policy.type": "dqn"})

    assert space.sample({}) == ({}, {"policy.type": "dqn"})


@pytest.mark.parametrize(
    "written",
    [
        {"policy": {"lr": LR}, "policy.lr": LR},
        {"policy.lr": LR, "+policy.lr": LR},
        {"policy": {"lr": LR, "+lr": 1}},
    ],
)
def test_a_path_given_twice_is_refused(written):
    assert "policy.lr: is defined twice" in complaint(written)


def test_the_same_path_in_both_configs_is_not_twice():
    space = build_space({"policy.type": SIZE}, {"policy.type": SIZE})

    assert list(space.tune_space()) == ["policy.type", "create_config.policy.type"]


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
