"""A sweep that was killed, interrupted or finished goes on: nothing is lost, nothing done twice."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import pytest
from ray import tune
from ray.tune.schedulers import MedianStoppingRule
from ray.tune.search.optuna import OptunaSearch

from ditk_ray import JobCfg
from ditk_ray.errors import BadConfigError
from ditk_ray.execution.scripted import scripted
from ditk_ray.record.record import TrialState, read_record
from ditk_ray.record.trial_folder import read_metrics
from ditk_ray.sweep.resume import read_earlier
from ditk_ray.trial.checkpoints import CheckpointStore
from tests.faults.sound_sweep import attempts, ended, require_sound
from tests.processes import PATIENCE, processes_in, wait_until
from tests.trial import experiments

pytestmark = pytest.mark.ray

JOB = f"""
from ray import tune
from ditk_ray import JobCfg

class KilledJobCfg(JobCfg):
    config = {experiments.CARTPOLE!r}
    searcher = "tpe"
    searcher_options = {{"n_startup_trials": 2}}
    scheduler = "asha"
    space = {{
        "policy.learn.learning_rate": tune.loguniform(1e-4, 1e-2),
        "env.stop_value": 10**9,
        "policy.eval.evaluator.eval_freq": 10,
    }}
    num_samples = 5
    max_env_step = 700
"""


def test_a_sweep_whose_driver_was_killed_goes_on_where_it_was(driver, tmp_path, ray_address):
    (tmp_path / "job.py").write_text(JOB)
    folder = tmp_path / "ditk_ray_results" / "killed"
    start = partial(driver, RAY_ADDRESS=ray_address)
    process = start("tune", "--cfg_file", "job.py", "--name", "killed", "--seed", "1")
    wait_until(lambda: len(ended(folder)) >= 2, 150, "two trials to end")
    wait_until(
        lambda: any(
            (folder / name / "checkpoints").is_dir() and name not in ended(folder)
            for name in attempts(folder)
        ),
        60,
        "a running trial with a checkpoint",
    )
    process.send_signal(signal.SIGKILL)
    process.wait()
    wait_until(lambda: not processes_in(folder), 15, "the trials to end with their driver")
    done = set(ended(folder))
    before = attempts(folder)
    saved = {name for name in before if CheckpointStore(folder / name).latest()}
    kept = {trial.id: trial.params for trial in read_earlier(folder).record.trials.values()}

    output, _ = start("resume", "killed").communicate(timeout=280 * PATIENCE)

    assert f"resuming killed: {len(done)} trials have ended" in output
    record = require_sound(folder, 5)
    assert record.status == "finished"
    for name, count in attempts(folder).items():
        if name in done:
            assert count == before[name], "what had ended is not run again"
    for name, params in kept.items():
        assert record.trials[name].params == params
    again = {name for name in before if attempts(folder)[name] > before[name]}
    assert again, "somebody was running"
    for name in again & saved:
        rows = read_metrics(folder / name)
        first = next(row for row in rows if row["ditk_ray_attempt"] == before[name])
        assert first["env_step"] > rows[0]["env_step"], "from a checkpoint, not from the start"
    assert processes_in(folder) == []
    assert json.loads((folder / "sweep.json").read_text())["worked_seconds"] > 0


def test_ctrl_c_once_stops_cleanly_and_says_how_to_go_on(driver, tmp_path, ray_address):
    (tmp_path / "job.py").write_text(JOB)
    folder = tmp_path / "ditk_ray_results" / "stopped"
    start = partial(driver, RAY_ADDRESS=ray_address)
    process = start("tune", "--cfg_file", "job.py", "--name", "stopped", "--num_samples", "2")
    wait_until(lambda: list(folder.glob("*/checkpoints/*")), 120, "a checkpoint")
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=60 * PATIENCE)
    assert process.returncode == 130
    assert "ditk-ray resume stopped" in output
    assert read_record(folder).status == "interrupted"
    assert processes_in(folder) == []

    output, _ = start("resume", "stopped").communicate(timeout=200 * PATIENCE)

    assert read_record(folder).status == "finished", output
    require_sound(folder, 2)


@scripted
def score_by_rate(config: Any, **_: Any) -> Iterator[dict[str, float]]:
    yield {"eval_value": config.policy.learn.learning_rate}


class Few(JobCfg):
    config = ({"policy": {"learn": {"learning_rate": 1e-3}}}, {})
    entry = score_by_rate
    space: ClassVar[Any] = {"policy.learn.learning_rate": tune.loguniform(1e-4, 1e-2)}
    num_samples = 3


def extended(earlier: Any, more: int) -> Any:
    job = replace(earlier.saved.job, num_samples=earlier.saved.job.num_samples + more)
    return replace(earlier, saved=replace(earlier.saved, job=job))


def test_a_finished_sweep_is_extended_by_the_trials_that_would_have_come_next(sweep, resume):
    whole = sweep(Few, seed=7, name="whole").record
    assert whole.status == "finished"
    first = sweep(Few, seed=7, name="short")
    longer = resume(extended(read_earlier(first.folder), 2)).record
    assert len(longer.trials) == 5
    rates = [next(iter(trial.params.values())) for trial in longer.trials.values()]
    assert rates[:3] == [next(iter(trial.params.values())) for trial in whole.trials.values()]
    assert len(set(rates)) == 5
    assert all(trial.attempt == 0 for trial in longer.trials.values())


def test_a_sweep_without_a_saved_job_cannot_be_resumed(tmp_path):
    with pytest.raises(BadConfigError, match=r"has no state/job\.pkl"):
        read_earlier(tmp_path)


def rate_alone(config: Any) -> dict[str, float]:
    return {"eval_value": config[0].policy.learn.learning_rate}


def never_late(trial_id: str, result: dict[str, Any]) -> bool:
    return result["training_iteration"] > 9 or result["time_total_s"] > 3600


def test_a_sweep_with_parts_of_the_users_own_goes_on_without_the_file_of_its_job(sweep, resume):
    class Own(Few):
        config = experiments.CARTPOLE
        entry = rate_alone  # Tune's median rule may pause a trial
        searcher = OptunaSearch()
        scheduler = MedianStoppingRule(time_attr="training_iteration", grace_period=1)
        stopper = never_late

    first = sweep(Own)
    earlier = extended(read_earlier(first.folder), 1)
    job = replace(earlier.saved.job, file=first.folder / "gone.py")
    record = resume(replace(earlier, saved=replace(earlier.saved, job=job))).record
    assert record.status == "finished"
    assert [trial.state for trial in record.trials.values()] == [TrialState.SUCCEEDED] * 4


@scripted
def fail_until_told(config: Any, **_: Any) -> Iterator[dict[str, float]]:
    if not Path(config.mended).exists():
        raise RuntimeError("not yet")
    yield {"eval_value": 1.0}


def test_failed_trials_are_run_again_on_request(sweep, resume, tmp_path):
    class Mendable(JobCfg):
        config = ({"mended": str(tmp_path / "mended")}, {})
        entry = fail_until_told
        num_samples = 2

    first = sweep(Mendable)
    assert [trial.state for trial in first.record.trials.values()] == ["failed"] * 2
    assert not read_earlier(first.folder).unfinished
    (tmp_path / "mended").touch()
    record = resume(read_earlier(first.folder, retry_failed=True)).record
    assert [trial.state for trial in record.trials.values()] == [TrialState.SUCCEEDED] * 2
    assert [trial.error for trial in record.trials.values()] == [None] * 2
