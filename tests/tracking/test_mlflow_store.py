from __future__ import annotations

import pytest
from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import ErrorCode
from mlflow.utils.validation import _validate_metric_name, _validate_param_name

from ditk_ray.tracking.mlflow_store import clipped, is_refused, masked_line, metrics_of, mlflow_name

pytestmark = pytest.mark.mlflow


@pytest.mark.parametrize("name", ["eval_value", "policy.learn.learning_rate", "a b/c-d", "é"])
def test_a_name_that_mlflow_takes_is_left_as_it_is(name):
    assert mlflow_name(name) == name


@pytest.mark.parametrize(
    "name", ["x[0]", "+new", "../x", "/x", "a//b", ".", "x/", "a:b", "x" * 300, "{}", "x\ny"]
)
def test_any_other_becomes_one_that_it_takes(name):
    safe = mlflow_name(name)

    _validate_metric_name(safe)
    _validate_param_name(safe)
    assert safe == mlflow_name(name)


def test_two_names_never_become_one():
    names = ["x[0]", "x(0)", "x_0_", "x" * 300, "x" * 301, "/x", "_x"]

    assert len({mlflow_name(name) for name in names}) == len(names)


def test_only_numbers_that_a_float_can_hold_are_metrics():
    values = {"a": 1, "b": 2.5, "c": True, "d": "x", "e": None, "f": 10**400, "g": float("nan")}

    assert [metric.key for metric in metrics_of(values, 2**70, 0)] == ["a", "b", "g"]


def test_a_text_is_cut_and_cleaned_of_what_databases_do_not_take():
    assert clipped("x" * 10, 8) == "xxxxx..."
    assert clipped("a\0b\ud800", 10) == "ab?"


def test_trouble_that_passes_is_no_refusal():
    def refusal(code):
        return is_refused(MlflowException("x", error_code=ErrorCode.Value(code)))

    assert refusal("INVALID_PARAMETER_VALUE")
    assert refusal("RESOURCE_DOES_NOT_EXIST")
    # What a server says when its pool of connections is used up.
    assert not refusal("BAD_REQUEST")
    assert not refusal("TEMPORARILY_UNAVAILABLE")
    assert not is_refused(ConnectionError("refused"))


def test_the_first_line_of_an_error_has_no_password():
    error = MlflowException("API request to http://me:pa55@host/api failed\nmore")

    assert masked_line(error) == "API request to http://me:***@host/api failed"
    assert masked_line(TimeoutError()) == "TimeoutError"
