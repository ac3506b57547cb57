"""What one trial needs of a node."""

from __future__ import annotations

import math
from typing import Any

import pytest

from ditk_ray.config.resources import TrialResources, parse_resources


def test_resources_are_read_as_a_user_writes_them():
    resources = parse_resources({"CPU": 2, "gpu": 0.5, "memory": "4G", "custom": {"tpu": 1}})

    assert resources == TrialResources(2.0, 0.5, 4 * 1024**3, {"tpu": 1.0})


def test_a_trial_gets_one_cpu_and_no_more_unless_it_says_so():
    assert parse_resources({}) == TrialResources(cpu=1.0, gpu=0.0, memory=None, custom={})


def test_resources_that_are_parsed_already_stay_as_they_are():
    resources = TrialResources(cpu=3)

    assert parse_resources(resources) is resources


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"cpus": 1}, "unknown cpus; the keys are cpu, gpu, memory, custom, max_memory"),
        ({"cpu": "2"}, "cpu is '2'; it has to be a number"),
        ({"cpu": True}, "cpu is True"),
        ({"cpu": -1}, "cpu is -1"),
        ({"cpu": None}, "cpu is None"),
        ({"cpu": math.nan}, "cpu is nan"),
        ({"cpu": math.inf}, "cpu is inf"),
        ({"gpu": math.inf}, "gpu is inf"),
        ({"gpu": 1.5}, "gpu is 1.5; above 1 it has to be a whole number"),
        ({"gpu": -0.5}, "gpu is -0.5"),
        ({"memory": "lots"}, "'lots' is not a memory size"),
        ({"memory": -1}, "-1 is not a memory size"),
        ({"memory": "2G", "max_memory": "1G"}, "max_memory has to be more than memory"),
        ({"max_memory": "1G"}, "which has to be given with it"),
        ({"custom": {"tpu": "one"}}, "tpu is 'one'"),
        ({"custom": ["tpu"]}, "custom.*dict"),
        ("2 cpus", "dict"),
        (None, "dict"),
        (["cpu"], "dict"),
    ],
)
def test_bad_resources_say_what_is_wrong(given: Any, message: str):
    with pytest.raises(ValueError, match=message):
        parse_resources(given)


@pytest.mark.parametrize("gpu", [0, 0.25, 1, 2, 4.0])
def test_a_gpu_may_be_shared_or_whole(gpu):
    assert parse_resources({"gpu": gpu}).gpu == gpu


def test_ray_is_asked_only_for_what_is_not_zero():
    resources = parse_resources({"cpu": 2, "gpu": 0, "memory": "1K", "custom": {"tpu": 1, "x": 0}})

    assert resources.for_ray() == {"CPU": 2.0, "memory": 1024.0, "tpu": 1.0}


@pytest.mark.parametrize(("cpu", "threads"), [(0, 1), (0.5, 1), (1, 1), (2.9, 2), (8, 8)])
def test_a_trial_has_a_thread_for_each_whole_cpu(cpu, threads):
    assert TrialResources(cpu=cpu).threads == threads


def test_resources_are_shown_in_words():
    resources = parse_resources({"cpu": 0.5, "gpu": 1, "memory": "2G", "custom": {"tpu": 3}})

    assert str(resources) == "0.5 CPU, 1 GPU, 2 GiB memory, 3 tpu"
    assert str(TrialResources()) == "1 CPU"


def test_more_memory_is_allowed_but_not_asked_for():
    resources = parse_resources({"memory": "1G", "max_memory": "3G"})
    assert resources.max_memory == 3 * 1024**3
    assert resources.for_ray()["memory"] == 1024**3
    assert "max_memory" not in resources.for_ray()


def test_a_trial_has_what_ray_gave_it():
    wanted = parse_resources({"memory": "1G", "max_memory": "3G", "custom": {"tpu": 1}})
    given = wanted.as_given({"CPU": 4.0, "GPU": 0.5, "memory": 3.0 * 1024**3, "tpu": 1.0})
    assert (given.cpu, given.gpu, given.memory) == (4.0, 0.5, 3 * 1024**3)
    assert (given.max_memory, given.custom) == (wanted.max_memory, {"tpu": 1.0})
