from __future__ import annotations

import json
import pickle
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ditk_ray.config.engine_config import load_engine_config
from ditk_ray.config.resources import TrialResources
from ditk_ray.errors import TrialFailedError, TrialTimeoutError
from ditk_ray.trial.attempt import Attempt
from ditk_ray.trial.reports import ENDED, RESULT
from tests.processes import PATIENCE, SLACK, processes_in, wait_until
from tests.trial import experiments
from tests.trial.experiments import attempt_here, make_plan

pytestmark = pytest.mark.engine


def run_to_end(run: Attempt) -> list[dict[str, Any]]:
    reports = []
    try:
        while not reports or ENDED not in reports[-1]:
            reports.append(run.next_report())
    finally:
        run.close()
    return reports


def run_entry(entry: Any, folder: Path, warm: Any, **changes: Any) -> list[dict[str, Any]]:
    plan = make_plan(folder, entry=entry, limits={}, **changes)
    return run_to_end(attempt_here(plan, {}, folder / "trial", warm))


@pytest.fixture(scope="module")
def trained(warm, tmp_path_factory):
    """The folder of a trial that has trained to its end, and its reports."""
    folder = tmp_path_factory.mktemp("trained")
    plan = make_plan(folder)
    return folder / "trial", run_to_end(attempt_here(plan, {}, folder / "trial", warm))


def test_every_evaluation_is_reported_with_its_spread_and_counters(trained):
    folder, reports = trained
    evaluations = reports[:-1]
    assert [report["train_iter"] for report in evaluations] == [0, 40, 80]
    assert [report["env_step"] for report in evaluations] == sorted(
        {report["env_step"] for report in evaluations}
    )
    for report in evaluations:
        assert report["eval_value_min"] <= report["eval_value"] <= report["eval_value_max"]
        assert report["eval_value_std"] >= 0
        assert report["time"] > 0
    kept = [json.loads(line) for line in (folder / "metrics.jsonl").open()]
    assert [row["eval_value"] for row in kept] == [row["eval_value"] for row in reports]


def test_the_pickled_return_is_kept_and_its_value_reported(trained):
    folder, reports = trained
    (written,) = folder.glob("attempt_0/*/result.pkl")
    kept = folder / "result.pkl"
    assert kept.read_bytes() == written.read_bytes()
    value = pickle.loads(kept.read_bytes())
    assert reports[-1][RESULT]["eval_value"] == value["eval_value"] == reports[-1]["eval_value"]


def test_a_trial_scores_exactly_what_its_config_file_scores_with_plain_python(warm, tmp_path):
    plan = make_plan(tmp_path, limits={"max_env_step": 300}, seeds=(7,))
    reports = run_to_end(attempt_here(plan, {}, tmp_path / "trial", warm))
    alone = tmp_path / "alone"
    alone.mkdir()
    subprocess.run(
        [sys.executable, "-W", "ignore", str(tmp_path / "trial/config.py")],
        cwd=alone,
        check=True,
        capture_output=True,
        timeout=120 * PATIENCE,
        env={"OMP_NUM_THREADS": "1", "PATH": "/usr/bin:/bin"},
    )
    (result,) = alone.glob("*/result.pkl")
    value = pickle.loads(result.read_bytes())
    assert reports[-1][RESULT]["eval_value_raw"] == [float(v) for v in value["eval_value_raw"]]
    assert reports[-1][RESULT]["env_step"] == value["env_step"]


def test_a_second_attempt_has_a_folder_of_its_own_with_all_that_it_prints(
    trained, warm, tmp_path, capfd
):
    trial = Path(shutil.copytree(trained[0], tmp_path / "trial"))
    run_to_end(attempt_here(make_plan(tmp_path), {}, trial, warm))
    for number in (0, 1):
        (experiment,) = trial.glob(f"attempt_{number}/cartpole*")
        assert experiment.name == "cartpole_dqn_seed0"
        assert "DI-engine DRL Policy" in (trial / f"attempt_{number}/log.txt").read_text()
    assert capfd.readouterr() == ("", "")


def test_several_seeds_are_one_trial_scored_by_their_mean(warm, tmp_path):
    plan = make_plan(tmp_path, seeds=(3, 5))
    reports = run_to_end(attempt_here(plan, {}, tmp_path / "trial", warm))
    for report in reports:
        each = [report["eval_value_seed_3"], report["eval_value_seed_5"]]
        assert report["eval_value"] == pytest.approx(sum(each) / 2)
    assert [value["env_step"] for value in reports[-1][RESULT]]
    assert (tmp_path / "trial/attempt_0/seed_3/log.txt").exists()
    assert (tmp_path / "trial/result_seed_5.pkl").exists()


def test_threads_gpus_and_cuda_follow_the_resources(warm, tmp_path):
    (report,) = run_entry(
        experiments.tell_environment, tmp_path, warm, resources=TrialResources(cpu=2)
    )
    assert (report["threads"], report["omp"]) == (2, 2)
    assert (report["cuda"], report["gpu"]) == (0, -1)


def test_a_trial_with_a_gpu_sees_only_its_own(warm, tmp_path):
    plan = make_plan(
        tmp_path,
        entry=experiments.tell_environment,
        limits={},
        resources=TrialResources(gpu=0.5),
    )
    (report,) = run_to_end(attempt_here(plan, {}, tmp_path / "trial", warm, gpu_ids=["3"]))
    assert (report["cuda"], report["gpu"]) == (1, 3)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (experiments.leave_without_a_word, "exited with code 3"),
        (experiments.evaluate_nothing, "without a single evaluation"),
    ],
)
def test_an_abnormal_end_is_never_a_finished_trial(entry, message, warm, tmp_path):
    with pytest.raises(TrialFailedError, match=message):
        run_entry(entry, tmp_path, warm)


def test_a_trial_that_never_evaluates_times_out(warm, tmp_path):
    with pytest.raises(TrialTimeoutError):
        run_entry(experiments.sleep_for_ever, tmp_path, warm, max_seconds=0.5)
    assert processes_in(tmp_path) == []


def test_a_trial_whose_time_is_over_ends_with_its_last_score(warm, tmp_path):
    seconds = 1.0 + SLACK
    reports = run_entry(experiments.endless_evaluations, tmp_path, warm, max_seconds=seconds)
    assert reports[-1][ENDED] == "time"
    assert reports[-1]["eval_value"] == reports[-2]["eval_value"]


def test_a_users_own_evaluator_is_heard_and_a_nan_ends_the_trial(warm, tmp_path):
    reports = run_entry(experiments.evaluate_to_nan, tmp_path, warm)
    assert [report["env_step"] for report in reports] == [0, 10]
    assert reports[0]["win_rate"] == 0.75
    assert reports[-1][ENDED] == "nan"
    assert processes_in(tmp_path) == []


def test_the_evaluator_of_a_task_pipeline_is_heard_too(warm, tmp_path):
    reports = run_entry(experiments.evaluate_by_task, tmp_path, warm)
    assert len(reports) == 2
    assert reports[0]["eval_value_min"] <= reports[0]["eval_value"] <= reports[0]["eval_value_max"]
    assert (reports[0]["env_step"], reports[0]["train_iter"]) == (0, 0)


def test_a_crashed_trial_leaves_no_environment_subprocess(warm, tmp_path):
    base = experiments.with_subprocess_envs(load_engine_config(experiments.CARTPOLE))
    plan = make_plan(tmp_path, base=base, limits={})
    run = attempt_here(plan, {}, tmp_path / "trial", warm)
    run.next_report()
    leader = next(p for p in processes_in(tmp_path) if len(p.children()) > 3)
    leader.kill()
    with pytest.raises(TrialFailedError, match="SIGKILL"):
        run_to_end(run)
    assert processes_in(tmp_path) == []


def test_even_children_that_ignore_sigterm_or_leave_the_group_are_ended(warm, tmp_path):
    plan = make_plan(tmp_path, entry=experiments.start_stubborn_children, limits={})
    run = attempt_here(plan, {}, tmp_path / "trial", warm)
    wait_until((tmp_path / "trial/attempt_0/ready").exists, 30, "the children")
    assert len(processes_in(tmp_path)) == 3
    run.close()
    assert processes_in(tmp_path) == []
