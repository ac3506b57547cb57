"""Checking a `JobCfg` as a whole."""

from __future__ import annotations

import re
from dataclasses import FrozenInstanceError
from datetime import timedelta
from typing import Any

import pytest
from ray import tune

from ditk_ray import JobCfg
from ditk_ray.config.job_spec import JobSpec, check_job
from ditk_ray.config.resources import TrialResources
from ditk_ray.config.terms import DEFAULT_RETRIES
from ditk_ray.errors import BadConfigError, Problem

PAIR = ({"policy": {"nstep": 1}}, {"policy": {"type": "dqn"}})


def job(**attributes: Any) -> type[JobCfg]:
    return type("MyJob", (JobCfg,), {"config": PAIR, **attributes})


def checked(**attributes: Any) -> JobSpec:
    return check_job(job(**attributes), {})


def problems(cls: type[JobCfg], **changes: Any) -> dict[str, Problem]:
    with pytest.raises(BadConfigError) as caught:
        check_job(cls, changes)
    return {problem.where.partition(": ")[0]: problem for problem in caught.value.problems}


def problem(**attributes: Any) -> Problem:
    """Return the problem of a job with one mistake, in the field of that name."""
    (field,) = attributes
    return problems(job(**attributes))[f"MyJob.{field}"]


def test_a_job_with_only_a_config_is_complete():
    spec = checked()

    assert spec.name == "MyJob"
    assert spec.config.main == {"policy": {"nstep": 1}}
    assert (spec.entry, spec.metric, spec.mode) == ("serial", "eval_value", "max")
    assert (spec.num_samples, spec.seeds) == (1, (0,))
    assert spec.resources == TrialResources(cpu=1.0)
    assert spec.space.parameters == ()


def test_a_checked_job_cannot_be_changed():
    with pytest.raises(FrozenInstanceError):
        checked().num_samples = 5


def test_a_job_inherits_from_another_job():
    parent = job(num_samples=7, space={"policy.nstep": tune.choice([1, 3])})

    class Child(parent):
        metric = "train_iter"

    spec = check_job(Child, {})

    assert (spec.name, spec.num_samples, spec.metric) == ("Child", 7, "train_iter")
    assert list(spec.space.tune_space()) == ["policy.nstep"]


def test_all_mistakes_are_listed_at_once_with_class_and_field():
    wrong = {
        "config": "no_such_config.py",
        "entry": "seriall",
        "mode": "maximum",
        "num_samples": 0,
        "metric": "",
        "seeds": 0,
        "max_time": "soon",
        "resources": {"cpu": -1},
        "checkpoints": "yes",
        "learning_rate": 3,
    }

    found = problems(job(**wrong, space={"a": 1, "+a": 1}))

    assert set(found) == {f"MyJob.{field}" for field in (*wrong, "space")}


def test_a_mistake_shows_the_value_that_is_wrong():
    assert "'maximum'" in problem(mode="maximum").what


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("num_sample", "num_samples"),
        ("max_env_steps", "max_env_step"),
        ("Scheduler", "scheduler"),
        ("creat_space", "create_space"),
    ],
)
def test_an_unknown_attribute_names_the_nearest_field(wrong, right):
    found = problem(**{wrong: 1})

    assert "is not a field of a JobCfg" in found.what
    assert f"did you mean {right!r}" in found.hint
    assert "underscore" in found.hint


@pytest.mark.parametrize("name", ["name", "file"])
def test_what_the_project_fills_in_itself_is_no_field(name):
    assert "is not a field" in problem(**{name: "mine"}).what


def test_attributes_that_start_with_an_underscore_are_the_users_own():
    assert checked(_sizes=[1, 2]).name == "MyJob"


def test_a_change_that_names_no_field_is_refused():
    assert "MyJob.num_sample" in problems(job(), num_sample=3)


def test_a_missing_config_says_what_to_set():
    class NoConfig(JobCfg):
        pass

    found = problems(NoConfig)["NoConfig.config"]

    assert found.what == "is missing"
    assert "dotted module" in found.hint


@pytest.mark.parametrize("config", [5, ["a", "b"], 0.5])
def test_a_config_of_no_known_kind_is_refused(config):
    assert "neither a path, a module nor a pair of dicts" in problem(config=config).what


def test_a_config_is_looked_for_beside_the_jobs_file(tmp_path):
    (tmp_path / "beside.py").write_text("main_config = {'a': 1}\ncreate_config = {}\n")

    spec = check_job(job(config="beside.py"), {}, tmp_path / "my_job.py")

    assert spec.config.main == {"a": 1}
    assert spec.file == tmp_path / "my_job.py"


def test_a_mistake_in_the_config_file_keeps_its_place(tmp_path):
    (tmp_path / "beside.py").write_text("1 / 0\n")

    with pytest.raises(BadConfigError) as caught:
        check_job(job(config="beside.py"), {}, tmp_path / "my_job.py")

    assert f"MyJob.config: {tmp_path / 'beside.py'}:1: ZeroDivisionError" in str(caught.value)


def test_an_unknown_entry_names_the_nearest():
    assert "did you mean 'serial_onpolicy'" in problem(entry="serial_onpolciy").what


def test_an_entry_may_be_a_function_of_the_users():
    def train(configs, seed):
        return None

    class Plain(JobCfg):
        config = PAIR
        entry = train

    class Static(JobCfg):
        config = PAIR
        entry = staticmethod(train)

    assert check_job(Plain, {}).entry is train
    assert check_job(Static, {}).entry is train


def test_an_entry_of_a_wrong_kind_is_one_mistake():
    with pytest.raises(BadConfigError) as caught:
        checked(entry=5)

    assert [item.where for item in caught.value.problems] == ["MyJob.entry"]


@pytest.mark.parametrize(
    ("given", "seeds"),
    [(1, (0,)), (3, (0, 1, 2)), ([5, 3], (5, 3)), ((0,), (0,)), (range(2), (0, 1))],
)
def test_seeds_are_a_number_or_a_list(given, seeds):
    assert checked(seeds=given).seeds == seeds


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (0, "at least one seed"),
        (-2, "at least one seed"),
        ([], "at least one seed"),
        ([1, 2, 1], "a seed is listed twice"),
        ([1.5], "integer"),
        (["1"], "integer"),
        ("12", ""),
        (2.5, ""),
        (None, ""),
        (True, ""),
        ([[1]], ""),
    ],
)
def test_wrong_seeds_are_refused(given, message):
    assert message in problem(seeds=given).what


@pytest.mark.parametrize("how", ["mean", "median", "worst", "iqm"])
def test_seeds_are_aggregated_in_a_known_way(how):
    assert checked(seeds_aggregate=how).seeds_aggregate == how
    assert repr(how) in problem(seeds_aggregate="medain").what


def test_retries_are_laid_over_the_defaults():
    assert checked().retries == dict(DEFAULT_RETRIES)
    assert checked(retries={"stall": 7}).retries == {**DEFAULT_RETRIES, "stall": 7}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"stal": 1}, "retries: 'stal' is not a kind of failure; did you mean 'stall'"),
        ({"bug": -1}, "retries.bug: is -1"),
        ({"bug": True}, "retries.bug: is True"),
        ({"bug": "often"}, "retries.bug: is 'often'"),
        (3, "has to be a dict"),
    ],
)
def test_wrong_retries_are_refused(given, message):
    with pytest.raises(BadConfigError, match=re.escape(message)):
        checked(retries=given)


def test_wrong_resources_of_a_task_are_refused_with_its_name():
    with pytest.raises(BadConfigError, match=r"MyJob.task_resources.learner: cpu is 'two'"):
        checked(task_resources={"learner": {"cpu": "two"}})


def test_checkpoints_are_kept_unless_told_otherwise():
    assert checked().checkpoints
    assert not checked().checkpoint_buffer
    assert not checked(checkpoints=False).checkpoints


def test_resources_are_read_with_their_units():
    spec = checked(resources={"cpu": 2, "gpu": 0.5, "memory": "4G"})

    assert spec.resources == TrialResources(2.0, 0.5, 4 * 1024**3)


@pytest.mark.parametrize(
    "given",
    [{"cpu": "many"}, {"ram": "4G"}, {"memory": "much"}, {"gpu": 1.5}, None, "4G", 2, ["cpu"]],
)
def test_wrong_resources_are_refused(given):
    assert problem(resources=given).what


@pytest.mark.parametrize(
    ("given", "seconds"), [(90, 90), ("30m", 1800), ("2h", 7200), (timedelta(hours=1), 3600)]
)
@pytest.mark.parametrize("field", ["max_time", "max_trial_time", "startup_time", "stall_time"])
def test_times_are_read_with_their_units(field, given, seconds):
    assert getattr(checked(**{field: given}), field) == seconds


@pytest.mark.parametrize("given", ["soon", 0, "0s", -5, timedelta(0), [1]])
def test_a_time_that_is_none_is_refused(given):
    assert problem(max_time=given).what


@pytest.mark.parametrize("field", ["max_env_step", "max_train_iter"])
def test_a_limit_may_be_written_like_1e5(field):
    limit = getattr(checked(**{field: 1e5}), field)

    assert (limit, type(limit)) == (100_000, int)


@pytest.mark.parametrize("given", [0, -1, 1.5, "100", True, float("inf"), float("nan")])
def test_a_limit_that_is_no_positive_whole_number_is_refused(given):
    assert problem(max_env_step=given).what


@pytest.mark.parametrize(
    ("field", "given"),
    [
        ("num_samples", -1),
        ("num_samples", True),
        ("num_samples", "8"),
        ("max_concurrent", 0),
        ("metric", 3),
        ("mode", None),
        ("backend", "magic"),
        ("checkpoints", 1),
        ("entry_args", [1]),
        ("space", ["policy.nstep"]),
        ("create_space", None),
    ],
)
def test_a_value_that_a_field_cannot_have_is_refused(field, given):
    assert problem(**{field: given}).what


def test_changes_win_over_the_class():
    spec = check_job(job(num_samples=3, seeds=1), {"num_samples": 9, "seeds": 2, "mode": "min"})

    assert (spec.num_samples, spec.seeds, spec.mode) == (9, (0, 1), "min")


def test_a_wrong_change_is_refused_like_a_wrong_attribute():
    assert "MyJob.num_samples" in problems(job(), num_samples=0)


def test_values_set_on_the_command_line_win_over_the_space():
    cls = job(space={"policy.nstep": tune.choice([1, 3])})

    spec = check_job(cls, {"set": {"policy.nstep": 5}})

    assert spec.space.tune_space() == {}
    assert spec.space.sample({})[0] == {"policy.nstep": 5}


def test_a_job_is_checked_without_being_changed():
    space = {"policy": {"nstep": tune.choice([1, 3])}}
    cls = job(space=space, entry_args={"a": 1})

    spec = check_job(cls, {"set": {"policy.nstep": 5}})
    spec.entry_args["a"] = 2

    assert set(space["policy"]) == {"nstep"}
    assert cls.entry_args == {"a": 1}
    assert dict(JobCfg.space) == {}


def test_searcher_and_scheduler_are_names_or_objects_of_tune():
    from ray.tune.schedulers import FIFOScheduler

    scheduler = FIFOScheduler()
    spec = checked(searcher="tpe", searcher_options={"n_startup_trials": 3}, scheduler=scheduler)

    assert (spec.searcher, spec.searcher_options) == ("tpe", {"n_startup_trials": 3})
    assert spec.scheduler is scheduler
    assert "it should be a valid string or an instance of Searcher" in problem(searcher=3).what
    assert "it should be a valid tuple" in problem(known_points={"policy.nstep": 1}).what


def test_single_settings_are_laid_over_those_of_the_job():
    cls = job(scheduler="asha", scheduler_options={"max_t": 9, "grace_period": 3})

    spec = check_job(cls, {"scheduler_opt": {"grace_period": 4}})

    assert spec.scheduler_options == {"max_t": 9, "grace_period": 4}


def test_another_scheduler_does_not_inherit_the_settings_of_the_first():
    cls = job(scheduler="asha", scheduler_options={"max_t": 9})

    spec = check_job(cls, {"scheduler": "median", "scheduler_opt": {"grace_period": 4}})

    assert spec.scheduler_options == {"grace_period": 4}
