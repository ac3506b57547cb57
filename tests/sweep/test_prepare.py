from __future__ import annotations

import os
from pathlib import Path
from typing import Any, ClassVar

import pytest
from ray import tune

from ditk_ray import JobCfg, when
from ditk_ray.config.job_spec import check_job
from ditk_ray.config.options import SweepOptions
from ditk_ray.errors import BadConfigError, DoesNotFitError
from ditk_ray.sweep.prepare import prepared_sweep
from ditk_ray.sweep.trials import SpaceSampler
from ditk_ray.sweep.tuner import tune_settings
from tests.processes import processes_in
from tests.trial import experiments

pytestmark = pytest.mark.engine


@pytest.fixture
def prepare(warm, tmp_path):
    """Prepare a job on this machine and return what would run, or the error."""

    def run(job: type[JobCfg], **options: Any) -> Any:
        given = SweepOptions(**{"storage_path": tmp_path / "results"} | options)
        with prepared_sweep(check_job(job, {}), given, warm) as prepared:
            return prepared

    yield run
    assert not (tmp_path / "results").exists(), "preparing a sweep creates nothing"
    assert processes_in(tmp_path) == []


class Cartpole(JobCfg):
    config = experiments.CARTPOLE


def test_paths_that_only_di_engine_knows_are_legitimate(prepare):
    class Defaults(Cartpole):
        space: ClassVar[Any] = {
            "policy.learn.update_per_collect": tune.randint(1, 5),
            "policy.learn.learner.hook.log_show_after_iter": 1000,
            "policy.collect.collector.collect_print_freq": 1000,
            "policy.eval.evaluator.eval_freq": tune.choice([40, 80]),
            "policy.other.replay_buffer.replay_buffer_size": 5000,
            "env.manager.auto_reset": True,
            "policy.model.head_layer_num": tune.choice([1, 2]),
        }
        create_space: ClassVar[Any] = {"env_manager.type": tune.choice(["base", "subprocess"])}

    assert prepare(Defaults).trial_count == 1


def test_a_typo_is_refused_with_the_nearest_path(prepare):
    class Typo(Cartpole):
        space: ClassVar[Any] = {"policy": {"learn": {"batch_sise": tune.choice([32])}}}

    with pytest.raises(BadConfigError, match=r"Typo: policy\.learn\.batch_sise") as refused:
        prepare(Typo)
    assert "did you mean 'policy.learn.batch_size'?" in str(refused.value)


def test_a_new_key_can_be_added_on_purpose(prepare):
    class New(Cartpole):
        space: ClassVar[Any] = {"+policy.learn.my_own": tune.uniform(0, 1)}

    prepare(New)


def test_an_argument_that_the_entry_needs_or_does_not_know_is_named(prepare):
    class Sqil(JobCfg):
        config = "dizoo.classic_control.cartpole.config.cartpole_sqil_config"
        entry = "serial_sqil"
        entry_args: ClassVar[Any] = {"expert_config": 1}

    with pytest.raises(BadConfigError) as refused:
        prepare(Sqil)
    assert "takes no such argument" in str(refused.value)
    assert "needs 'expert_cfg'" in str(refused.value)


def test_a_limit_that_the_entry_does_not_know_is_refused(prepare):
    class Offline(JobCfg):
        config = "dizoo.classic_control.cartpole.config.cartpole_cql_config"
        entry = "serial_offline"
        max_env_step = 100

    with pytest.raises(BadConfigError, match="max_env_step: entry 'serial_offline' takes no"):
        prepare(Offline)


def test_a_config_that_di_engine_cannot_compile_is_refused(prepare):
    class Unknown(Cartpole):
        create_space: ClassVar[Any] = {}
        config = ({"policy": {}, "env": {}}, {"policy": {"type": "no_such"}, "env_manager": {}})

    with pytest.raises(BadConfigError, match="DI-engine cannot compile it"):
        prepare(Unknown)


MAIN = """
from dizoo.classic_control.cartpole.config.cartpole_dqn_config import main_config, create_config

{change}

if __name__ == "__main__":
    pass
"""


def test_a_config_that_its_main_block_trains_is_checked_by_what_di_engine_knows(prepare, tmp_path):
    (tmp_path / "own_config.py").write_text(MAIN.format(change=""))

    class Typo(JobCfg):
        config = str(tmp_path / "own_config.py")
        entry = "main"
        space: ClassVar[Any] = {"policy.learn.update_per_colect": tune.choice([1, 2])}

    with pytest.raises(BadConfigError, match=r"did you mean 'policy\.learn\.update_per_collect'"):
        prepare(Typo)


def test_a_main_block_may_train_what_di_engine_cannot_compile(prepare, tmp_path):
    text = MAIN.format(change="create_config = {'policy': {'type': 'nothing_that_is_known'}}")
    (tmp_path / "own_config.py").write_text(text)

    class Own(JobCfg):
        config = str(tmp_path / "own_config.py")
        entry = "main"
        space: ClassVar[Any] = {"policy.learn.batch_size": tune.choice([1, 2])}

    assert prepare(Own).trial_count == 1


def test_memory_that_a_trial_may_need_later_has_to_be_somewhere(prepare):
    class Growing(Cartpole):
        resources: ClassVar[Any] = {"memory": "100M", "max_memory": "4000T"}

    with pytest.raises(BadConfigError, match=r"resources\.max_memory: no node can hold"):
        prepare(Growing)


def test_a_trial_that_fits_on_no_node_is_refused(prepare):
    class Huge(Cartpole):
        resources: ClassVar[Any] = {"cpu": 4096, "gpu": 8}

    with pytest.raises(DoesNotFitError, match="needs 4096 CPU, 8 GPU, and no node"):
        prepare(Huge)


def test_a_name_that_is_taken_or_no_name_is_refused(prepare, tmp_path):
    (tmp_path / "elsewhere/taken").mkdir(parents=True)
    with pytest.raises(BadConfigError, match="exists already"):
        prepare(Cartpole, name="taken", storage_path=tmp_path / "elsewhere")
    with pytest.raises(BadConfigError, match="letters, digits"):
        prepare(Cartpole, name="../up")
    with pytest.raises(BadConfigError, match="File name too long"):
        prepare(Cartpole, name="a" * 300, storage_path=tmp_path / "elsewhere")
    with pytest.raises(BadConfigError, match="home directory"):
        prepare(Cartpole, storage_path=Path("~nobody_at_all/results"))


def test_a_bad_stopper_is_refused(prepare):
    class Stopped(Cartpole):
        stopper = "eval_value above 3"

    with pytest.raises(BadConfigError, match=r"at 'above' \(character 12\)"):
        prepare(Stopped)


def test_a_rule_about_the_sweep_knows_how_many_seeds_a_trial_has(prepare):
    class Seeds(Cartpole):
        seeds = 3
        stopper = "sweep.env_step>=900"

    stopper = prepare(Seeds).stopper
    stopper("trial", {"env_step": 300.0})
    assert stopper.stop_all()


def test_the_grid_and_the_samples_make_the_trials(prepare):
    class Grid(Cartpole):
        space: ClassVar[Any] = {
            "policy.nstep": tune.grid_search([1, 3, 5]),
            "policy.learn.batch_size": tune.grid_search([32, 64]),
            "policy.discount_factor": tune.uniform(0.9, 0.99),
        }
        num_samples = 4
        max_concurrent = 1

    prepared = prepare(Grid)
    assert (prepared.trial_count, prepared.concurrency) == (24, 1)


def test_a_grid_is_whole_besides_the_points_that_are_known(prepare):
    class Known(Cartpole):
        searcher = "grid"
        space: ClassVar[Any] = {
            "policy.nstep": tune.choice([1, 3, 5]),
            "policy.learn.batch_size": tune.choice([32, 64]),
        }
        known_points: ClassVar[Any] = [{"policy.nstep": 3}]

    prepared = prepare(Known)
    assert prepared.trial_count == 2 + 6
    draws = SpaceSampler(prepared.search.space.tune_space(), 0, prepared.search.first)
    drawn = [tuple((draws.draw("") or {}).values()) for _ in range(prepared.trial_count)]
    assert len(set(drawn)) == 6
    assert {point[0] for point in drawn[:2]} == {3}


@pytest.mark.parametrize(("most", "at_once"), [(2, "2"), (None, "8")])
def test_trials_that_wait_for_each_other_run_all_at_once_unless_fewer_are_wanted(
    prepare, most, at_once
):
    class Paused(Cartpole):
        scheduler = "hyperband"
        max_env_step = 1000
        num_samples = 8
        max_concurrent = most
        resources: ClassVar[Any] = {"cpu": 0.1}

    with tune_settings(prepare(Paused)):
        assert os.environ["TUNE_MAX_PENDING_TRIALS_PG"] == at_once


def test_workers_per_node_divide_each_node_evenly(prepare):
    whole = prepare(Cartpole, num_workers_per_node=1)
    assert whole.resources.cpu == whole.nodes[0].resources["CPU"]
    assert whole.slots == 1
    quarter = prepare(Cartpole, num_workers_per_node=8)
    assert quarter.slots == 8


def test_a_condition_reaches_the_trials_config(prepare):
    class Conditional(Cartpole):
        space: ClassVar[Any] = {
            "policy.other.eps.type": tune.choice(["exp", "linear"]),
            "policy.other.eps.decay": when("policy.other.eps.type", "exp", tune.randint(10, 99)),
        }

    plan = prepare(Conditional).trial_plan()
    drawn = {"policy.other.eps.type": "exp", "policy.other.eps.decay": 42}
    assert plan.config_of(drawn).main["policy"]["other"]["eps"]["decay"] == 42
    other = plan.config_of(drawn | {"policy.other.eps.type": "linear"})
    assert other.main["policy"]["other"]["eps"]["decay"] == 10000
