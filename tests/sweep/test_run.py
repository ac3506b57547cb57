from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import psutil
import pytest
from ray import tune

from ditk_ray import JobCfg
from ditk_ray.config.engine_config import load_engine_config
from ditk_ray.errors import MetricMissingError
from ditk_ray.execution.scripted import scripted
from ditk_ray.record.sweep_folder import Action, Request, ask
from ditk_ray.record.trial_folder import read_metrics
from tests.processes import PATIENCE, SLACK, alive, processes_in, wait_until
from tests.trial import experiments

pytestmark = pytest.mark.ray


class Quick(JobCfg):
    config = experiments.CARTPOLE
    space: ClassVar[Any] = {"policy.learn.learning_rate": tune.loguniform(1e-4, 1e-2)}
    num_samples = 2
    max_env_step = 200


def actors() -> set[int]:
    """Return the processes of the Tune actors of the tests' own Ray."""
    found = set()
    for process in psutil.process_iter(["cmdline"]):
        if "ResourceTrainable" in " ".join(process.info["cmdline"] or []):
            with contextlib.suppress(psutil.Error):
                if process.environ().get("RAY_AUTH_TOKEN") == os.environ["RAY_AUTH_TOKEN"]:
                    found.add(process.pid)
    return found


@pytest.fixture(scope="module")
def quick(sweep_in, tmp_path_factory):
    """A finished sweep whose trials really trained."""
    return sweep_in(tmp_path_factory.mktemp("quick"), Quick, seed=3)


def test_a_sweep_leaves_a_record_a_folder_for_each_trial_and_the_best_ones_config(quick):
    assert quick.succeeded
    record = json.loads((quick.folder / "sweep.json").read_text())
    assert (record["version"], record["name"], record["status"]) == (1, "Quick", "finished")
    assert (record["metric"], record["mode"]) == ("eval_value", "max")
    assert [trial["state"] for trial in record["trials"]] == ["succeeded", "succeeded"]
    for trial in record["trials"]:
        assert set(trial["params"]) == {"policy.learn.learning_rate"}
        assert trial["metrics"]["env_step"] >= trial["best_metrics"]["env_step"]
        assert trial["error"] is None
        config = load_engine_config(Path(trial["dir"]) / "config.py")
        drawn = trial["params"]["policy.learn.learning_rate"]
        assert config.main["policy"]["learn"]["learning_rate"] == drawn
        assert (Path(trial["dir"]) / "attempt_0/log.txt").stat().st_size > 0
    best = max(trial["best_metrics"]["eval_value"] for trial in record["trials"])
    assert record["best"]["score"] == best
    # The file of a trial's own config is run by tests of the trial.
    title, *lines = (quick.folder / "best_config.py").read_text().splitlines()
    assert quick.record.best().id in title
    assert lines == (Path(quick.record.best().dir) / "config.py").read_text().splitlines()[1:]


@scripted
def take_time(config: Any, **_: Any) -> Iterator[dict[str, float]]:
    for _ in range(5):
        time.sleep(0.1)
        yield {"eval_value": 1.0}


class Lasting(JobCfg):
    config = ({}, {})
    entry = take_time
    num_samples = 2
    max_concurrent = 1


def test_the_record_on_disk_is_always_whole_and_follows_the_sweep(sweep, tmp_path, monkeypatch):
    monkeypatch.setattr("ditk_ray.sweep.observer.REFRESH_SECONDS", 0.05)
    file = tmp_path / "results/Lasting/sweep.json"
    seen: list[dict[str, Any]] = []
    done = threading.Event()

    def read() -> None:
        while not done.wait(0.02):
            if file.exists():
                seen.append(json.loads(file.read_text()))

    reader = threading.Thread(target=read)
    reader.start()
    sweep(Lasting)
    done.set()
    reader.join()
    assert {record["status"] for record in seen} >= {"running"}
    states = {trial["state"] for record in seen for trial in record["trials"]}
    assert {"running", "succeeded"} <= states
    assert any(len(record["trials"][0]["metrics"]) > 0 for record in seen if record["trials"])


@scripted
def score_by_rate(config: Any, **_: Any) -> Iterator[dict[str, float]]:
    for step in range(1, 6):
        yield {"eval_value": step * config.policy.learn.learning_rate, "env_step": 10.0 * step}


class Scored(Quick):
    config = ({"policy": {"learn": {"learning_rate": 1e-3}}}, {})
    entry = score_by_rate


def test_the_same_seed_draws_the_same_trials(quick, sweep):
    first, second = quick.record, sweep(Scored, seed=3).record
    assert [t.params for t in first.trials.values()] == [t.params for t in second.trials.values()]


def spoil_global_state(config: Any) -> dict[str, float]:
    import os
    import random

    import ding.utils
    import torch

    found = float(hasattr(ding.utils, "spoiled") or "SPOILED" in os.environ)
    found += float(torch.get_default_dtype() is not torch.float32)
    ding.utils.spoiled = True
    os.environ["SPOILED"] = "1"
    torch.set_default_dtype(torch.float64)
    random.seed(0)
    Path("left_behind").touch()
    return {"eval_value": found + len(list(Path.cwd().glob("left*"))) - 1}


class Spoiling(JobCfg):
    config = experiments.CARTPOLE
    entry = spoil_global_state
    num_samples = 4
    max_concurrent = 1


def test_trials_that_share_an_actor_share_no_state_and_the_environment_is_left_as_it_was(sweep):
    wait_until(lambda: not actors(), 30, "those of earlier sweeps to end")
    before = {name for name in os.environ if name.startswith("TUNE_")}
    seen: set[int] = set()
    done = threading.Event()

    def watch() -> None:
        while not done.wait(0.05):
            seen.update(actors())

    watcher = threading.Thread(target=watch)
    watcher.start()
    outcome = sweep(Spoiling)
    done.set()
    watcher.join()
    assert [trial.metrics["eval_value"] for trial in outcome.record.trials.values()] == [0.0] * 4
    assert len(seen) == 1
    after = {name for name in os.environ if name.startswith("TUNE_")}
    assert after - before <= {"TUNE_DISABLE_SIGINT_HANDLER"}


@scripted
def fail_for_small_values(config: Any, **_: Any) -> Iterator[dict[str, float]]:
    rate = config.policy.learn.learning_rate
    if rate < 0.5:
        raise RuntimeError(f"{rate} is too small")
    yield {"eval_value": rate}
    if rate < 0.8:
        yield {"eval_value": float("nan")}
        yield {"eval_value": 1.0}


class HalfFailing(Scored):
    entry = fail_for_small_values
    num_samples = 1
    space: ClassVar[Any] = {"policy.learn.learning_rate": tune.grid_search([0.1, 0.7, 0.9])}


class AllFailing(HalfFailing):
    space: ClassVar[Any] = {"policy.learn.learning_rate": tune.grid_search([0.1])}


def test_a_failed_trial_does_not_end_the_sweep_and_one_whose_score_becomes_nan_is_pruned(sweep):
    outcome = sweep(HalfFailing)
    failed, pruned, good = outcome.record.trials.values()
    assert outcome.succeeded
    assert [trial.state for trial in (failed, pruned, good)] == ["failed", "pruned", "succeeded"]
    log = Path(failed.dir) / "attempt_0/log.txt"
    assert failed.error == f"RuntimeError: 0.1 is too small [log: {log}]"
    assert "Traceback" in log.read_text()
    assert pruned.best_metrics["eval_value"] == 0.7
    assert outcome.record.best() is good


def test_a_sweep_without_a_good_trial_has_not_succeeded(sweep):
    outcome = sweep(AllFailing)
    assert outcome.record.status == "finished"
    assert not outcome.succeeded
    assert not (outcome.folder / "best_config.py").exists()


class WrongMetric(Quick):
    metric = "reward_mean"


def test_a_metric_that_is_never_reported_ends_the_sweep_at_its_first_result(sweep, tmp_path):
    with pytest.raises(MetricMissingError, match=r"'reward_mean'.*eval_value, eval_value_max"):
        sweep(WrongMetric)
    record = json.loads((tmp_path / "results/WrongMetric/sweep.json").read_text())
    assert record["status"] == "failed"


class Ruled(Quick):
    stopper = "train_iter>=40"
    max_env_step = 100_000


def test_a_stopper_ends_trials_early_and_they_are_told_apart_from_finished_ones(sweep):
    outcome = sweep(Ruled)
    assert [t.state for t in outcome.record.trials.values()] == ["stopped", "stopped"]
    assert [t.metrics["train_iter"] for t in outcome.record.trials.values()] == [40, 40]
    assert outcome.succeeded
    assert processes_in(outcome.folder) == []


class Limited(JobCfg):
    config = experiments.CARTPOLE
    entry = experiments.sleep_for_ever
    max_trial_time = 1


class SweepLimited(JobCfg):
    config = experiments.CARTPOLE
    entry = experiments.endless_evaluations
    num_samples = 20
    max_time = f"{8 + 4 * SLACK}s"


def test_a_trial_that_uses_up_its_time_without_a_score_has_failed(sweep):
    (trial,) = sweep(Limited).record.trials.values()
    assert trial.state == "failed"
    assert "no evaluation within the time" in trial.error


def test_a_sweep_ends_when_its_time_is_over(sweep):
    begun = time.monotonic()
    outcome = sweep(SweepLimited)
    assert time.monotonic() - begun < 45 * PATIENCE
    assert outcome.succeeded
    assert {trial.state for trial in outcome.record.trials.values()} <= {"stopped", "pending"}
    assert processes_in(outcome.folder) == []


class WithoutCheckpoints(Quick):
    num_samples = 1
    checkpoints = False


def test_checkpoints_are_kept_unless_unwanted_and_are_dicts_that_torch_loads(quick, sweep):
    import torch

    assert not list(sweep(WithoutCheckpoints).folder.glob("trial_*/checkpoints/*/*"))
    found = sorted(quick.folder.glob("trial_00000/checkpoints/*/seed_3.pth.tar"))
    assert 1 <= len(found) <= 2
    assert {"model", "optimizer"} <= set(torch.load(found[-1], weights_only=False))


class Subprocesses(JobCfg):
    config = experiments.CARTPOLE
    create_space: ClassVar[Any] = {"env_manager.type": "subprocess"}
    space: ClassVar[Any] = {"env.stop_value": 10**9}


def test_when_an_actor_is_killed_nothing_of_its_trial_survives_and_it_is_tried_again(
    sweep, tmp_path
):
    folder = tmp_path / "results" / "Subprocesses"
    outcomes: list[Any] = []
    thread = threading.Thread(target=lambda: outcomes.append(sweep(Subprocesses)))
    thread.start()
    wait_until(lambda: list(folder.glob("*/checkpoints/1")), 90, "the first checkpoint")
    before = processes_in(folder)
    assert len(before) > 5
    (actor,) = actors()
    psutil.Process(actor).kill()
    wait_until(lambda: not any(map(alive, before)), 10, "the trial's processes to end")
    wait_until(
        lambda: '"ditk_ray_attempt": 1' in (folder / "trial_00000/metrics.jsonl").read_text(),
        60,
        "an evaluation of the next attempt",
    )
    assert ask(folder, Request(Action.CANCEL, "trial_00000")).is_done
    thread.join(60 * PATIENCE)
    (trial,) = outcomes[0].record.trials.values()
    assert (trial.state, trial.error, trial.attempt) == ("stopped", None, 1)
    assert [failure["kind"] for failure in trial.failures] == ["lost"]
    rows = read_metrics(Path(trial.dir))
    first_again = next(row for row in rows if row["ditk_ray_attempt"] == 1)
    assert first_again["env_step"] > rows[0]["env_step"], "it has gone on, not begun anew"
    assert processes_in(folder) == []


class TwoSeeds(Scored):
    seeds = 2
    num_samples = 1


def test_seeds_that_were_only_counted_start_at_the_sweeps_own(sweep):
    (trial,) = sweep(TwoSeeds, seed=40).record.trials.values()
    assert {"eval_value_seed_40", "eval_value_seed_41"} <= set(trial.metrics)


class Scheduled(Scored):
    """The best comes first, so that each of the others is seen to be worse at once."""

    space: ClassVar[Any] = {"policy.learn.learning_rate": tune.grid_search([0.3, 0.2, 0.1])}
    scheduler = tune.schedulers.AsyncHyperBandScheduler(
        time_attr="env_step", grace_period=20, max_t=100
    )
    num_samples = 1
    max_concurrent = 1


def test_a_scheduler_of_ray_tunes_is_used_as_it_is(sweep):
    outcome = sweep(Scheduled)
    assert outcome.succeeded
    trials = outcome.record.trials.values()
    assert [trial.state for trial in trials] == ["succeeded", "stopped", "stopped"]
    assert [trial.metrics["env_step"] for trial in trials] == [50, 20, 20]


def test_a_shipped_callable_needs_no_importable_module(sweep, tmp_path):
    file = tmp_path / "own_job.py"
    file.write_text(
        "from ditk_ray import JobCfg\n"
        "import own_helper\n"
        "def entry(config, seed):\n"
        "    return {'eval_value': own_helper.value(), 'seed_seen': seed}\n"
        "class OwnJobCfg(JobCfg):\n"
        f"    config = {experiments.CARTPOLE!r}\n"
        "    entry = entry\n"
    )
    (tmp_path / "own_helper.py").write_text("def value():\n    return 42.0\n")
    from ditk_ray.config.job_files import load_job

    job = load_job("OwnJobCfg", file)
    outcome = sweep(job)
    (trial,) = outcome.record.trials.values()
    assert (trial.metrics["eval_value"], trial.metrics["seed_seen"]) == (42.0, 0.0)
    assert "own_job.py" in (outcome.folder / "best_config.py").read_text()
