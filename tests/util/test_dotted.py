"""Dotted paths into nested dicts and lists."""

from __future__ import annotations

import pytest

from ditk_ray.util import dotted


def test_a_path_reaches_into_dicts_lists_and_tuples():
    tree = {"model": {"sizes": [128, 64], "kernels": ((3, 1), (5, 2))}}

    assert dotted.get(tree, "model.sizes.1") == 64
    assert dotted.get(tree, "model.kernels.1.0") == 5


def test_a_path_reaches_a_key_that_is_a_number():
    assert dotted.get({"agents": {0: {"lr": 0.1}}}, "agents.0.lr") == 0.1


@pytest.mark.parametrize("path", ["a.x", "a.b.c", "list.7", "list.first", "x", "list.-1"])
def test_a_path_that_leads_nowhere_raises_with_the_whole_path(path):
    with pytest.raises(dotted.MissingPathError, match=path):
        dotted.get({"a": {"b": 1}, "list": [1, 2]}, path)


def test_put_makes_the_dicts_on_the_way():
    tree: dotted.Tree = {}

    dotted.put(tree, "policy.learn.batch_size", 64)

    assert tree == {"policy": {"learn": {"batch_size": 64}}}


def test_put_sets_an_item_of_a_list():
    tree = {"sizes": [1, {"width": 2}]}

    dotted.put(tree, "sizes.0", 10)
    dotted.put(tree, "sizes.1.width", 20)

    assert tree == {"sizes": [10, {"width": 20}]}


def test_put_keeps_a_key_that_is_a_number():
    tree = {"agents": {0: "old"}}

    dotted.put(tree, "agents.0", "new")

    assert tree == {"agents": {0: "new"}}


def test_put_makes_a_dict_where_there_was_none():
    tree = {"noise": None}

    dotted.put(tree, "noise.sigma", 0.1)

    assert tree == {"noise": {"sigma": 0.1}}


@pytest.mark.parametrize("path", ["number.below", "sizes.5", "sizes.first", "sizes.5.width"])
def test_put_where_nothing_can_stand_raises_a_missing_path(path):
    with pytest.raises(dotted.MissingPathError):
        dotted.put({"number": 3, "sizes": [1, 2]}, path, 1)


def test_leaves_are_all_paths_with_lists_and_empty_dicts_as_values():
    tree = {"a": {"b": 1, "c": [1, {"d": 2}]}, "e": {}, "f": None}

    assert dict(dotted.leaves(tree)) == {"a.b": 1, "a.c": [1, {"d": 2}], "e": {}, "f": None}


def test_merging_goes_dict_by_dict_and_replaces_the_rest():
    base = {"learn": {"lr": 0.1, "sizes": [1, 2]}, "seed": 0}

    result = dotted.merged(base, {"learn": {"sizes": [3]}, "new": 1})

    assert result == {"learn": {"lr": 0.1, "sizes": [3]}, "seed": 0, "new": 1}


def test_merging_touches_neither_side():
    base, over = {"a": {"list": [1]}}, {"a": {"other": [2]}}

    result = dotted.merged(base, over)
    result["a"]["list"].append(9)
    result["a"]["other"].append(9)

    assert base == {"a": {"list": [1]}}
    assert over == {"a": {"other": [2]}}


def test_a_plain_copy_shares_no_container_and_keeps_tuples():
    original = {"a": {"b": [1, (2, [3])]}}

    copy = dotted.plain(original)
    copy["a"]["b"][1][1].append(4)

    assert original == {"a": {"b": [1, (2, [3])]}}
    assert isinstance(copy["a"]["b"][1], tuple)
