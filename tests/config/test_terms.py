"""One metric to optimise, or several."""

from __future__ import annotations

from typing import Any

import pytest

from ditk_ray import JobCfg
from ditk_ray.config.job_spec import JobSpec, check_job
from ditk_ray.config.terms import Objective, show_objectives
from ditk_ray.errors import BadConfigError

BOTH = (Objective("eval_value", "max"), Objective("time", "min"))


def checked(own_metric: Any, own_mode: Any, **changes: Any) -> JobSpec:
    attributes = {"config": ({"policy": {}}, {}), "metric": own_metric, "mode": own_mode}
    return check_job(type("MyJob", (JobCfg,), attributes), changes)


def test_one_metric_is_one_objective():
    spec = checked("eval_value", "max")
    assert spec.objectives == (Objective("eval_value", "max"),)
    assert spec.more_objectives == ()


@pytest.mark.parametrize(
    ("metric", "mode"),
    [
        (["eval_value", "time"], ["max", "min"]),
        (("eval_value", "time"), ("max", "min")),
        ("eval_value,time", "max, min"),
        ("eval_value, time", ["max", "min"]),
    ],
)
def test_several_are_listed_or_written_with_commas(metric, mode):
    spec = checked(metric, mode)
    assert spec.objectives == BOTH
    assert (spec.metric, spec.mode) == ("eval_value", "max")
    assert show_objectives(spec.objectives) == "max eval_value, min time"


def test_the_command_line_wins():
    assert checked("x", "min", metric="eval_value,time", mode="max,min").objectives == BOTH


def test_a_single_mode_counts_for_all():
    assert {objective.mode for objective in checked(["a", "b", "c"], "min").objectives} == {"min"}


@pytest.mark.parametrize(
    ("metric", "mode", "field", "said"),
    [
        (["a", "b"], ["max", "min", "max"], "mode", "there are 3 for 2 metrics"),
        ("a", ["max", "min"], "mode", "there are 2 for 1 metrics"),
        ("a,b", "max,mim", "mode", "it is 'max,mim'; it has to be max or min"),
        (["a", "a"], "max", "metric", "a metric is listed twice"),
        ([], "max", "metric", "it has to be the name of a metric"),
        ("a,,b", "max", "metric", "it has to be the name of a metric"),
        (["a", 3], "max", "metric", "it has to be the name of a metric"),
        ("a", [], "mode", "it is []; it has to be max or min"),
    ],
)  # fmt: skip
def test_mistakes_are_told_with_the_field(metric, mode, field, said):
    with pytest.raises(BadConfigError) as caught:
        checked(metric, mode)
    (problem,) = caught.value.problems
    assert problem.where == f"MyJob.{field}"
    assert said in problem.what


def test_the_rest_of_the_objectives_is_no_field_of_its_own():
    with pytest.raises(BadConfigError, match="more_objectives: is not a field"):
        checked("a", "max", more_objectives=BOTH)
