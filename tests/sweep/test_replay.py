"""Training a recorded trial again: real trials, run without Ray."""

from __future__ import annotations

import json

import pytest

from ditk_ray.config.engine_config import load_engine_config
from ditk_ray.errors import BadConfigError
from ditk_ray.record.record import SweepRecord, TrialRecord
from ditk_ray.sweep.replay import Replay, read_evaluations, replay_trial
from ditk_ray.trial.reports import ENDED
from tests.processes import processes_in
from tests.trial.experiments import attempt_here, make_plan

pytestmark = pytest.mark.engine


def recorded(warm, folder, reports=None, **changes):
    """Train a trial, to its end or for some reports, and return its record."""
    plan = make_plan(folder, warm.key, **changes)
    run = attempt_here(plan, {}, folder / "trial_00000", warm)
    trial = TrialRecord("trial_00000", {}, dir=str(folder / "trial_00000"))
    record = SweepRecord("s", "eval_value", "max", trials={trial.id: trial})
    record.job = {"seeds": list(plan.job.seeds), "resources": plan.job.resources.given()}
    while reports is None or trial.reports < reports:
        metrics = run.next_report()
        record.add_report(trial, metrics)
        if ENDED in metrics:
            break
    run.close()
    return record, trial


def test_a_trial_that_is_run_again_gets_the_same_scores(warm, tmp_path):
    record, trial = recorded(warm, tmp_path)

    replay = replay_trial(record, trial, warm)

    assert replay.agrees
    assert len(replay.replayed) == len(replay.recorded) == trial.reports - 1
    assert replay.folder == tmp_path / "replays/trial_00000_0"
    assert processes_in(tmp_path) == []


def test_a_trial_that_was_stopped_early_is_compared_as_far_as_it_went(warm, tmp_path):
    record, trial = recorded(warm, tmp_path, reports=2, limits={"max_env_step": 5000})
    told = []

    replay = replay_trial(record, trial, warm, lambda number, old, new: told.append(number))

    assert replay.agrees
    assert told == [1, 2]
    assert processes_in(tmp_path) == []


def test_a_trial_on_several_seeds_is_run_on_all_of_them(warm, tmp_path):
    record, trial = recorded(warm, tmp_path, seeds=(3, 4))

    replay = replay_trial(record, trial, warm)

    assert replay.agrees
    assert set(replay.replayed[0]) >= {"eval_value_seed_3", "eval_value_seed_4"}


MAIN = """
from dizoo.classic_control.cartpole.config.cartpole_dqn_config import main_config, create_config

if __name__ == "__main__":
    from ding.entry import serial_pipeline

    serial_pipeline((main_config, create_config), seed=0, max_env_step=200)
"""


def test_a_trial_whose_main_block_trained_it_is_run_again_by_that(warm, tmp_path):
    (tmp_path / "own_config.py").write_text(MAIN)
    base = load_engine_config(tmp_path / "own_config.py")
    record, trial = recorded(warm, tmp_path, base=base, entry="main", limits={})
    (tmp_path / "own_config.py").unlink()

    replay = replay_trial(record, trial, warm)

    assert replay.agrees
    assert len(replay.replayed) == len(replay.recorded) == trial.reports - 1


def test_a_config_that_was_changed_since_is_seen_to_differ(warm, tmp_path):
    record, trial = recorded(warm, tmp_path, limits={"max_env_step": 400})
    config = tmp_path / "trial_00000/config.py"
    config.write_text(config.read_text().replace("seed=0", "seed=9"))
    record.job["seeds"] = [9]

    replay = replay_trial(record, trial, warm)

    assert not replay.agrees
    assert replay.first_difference is not None


def test_a_trial_that_left_nothing_to_run_or_to_compare_is_refused(warm, tmp_path):
    record, trial = recorded(warm, tmp_path)
    (tmp_path / "trial_00000/metrics.jsonl").unlink()
    with pytest.raises(BadConfigError, match="no evaluation"):
        replay_trial(record, trial, warm)

    (tmp_path / "trial_00000/config.py").unlink()
    with pytest.raises(BadConfigError, match="no config file"):
        replay_trial(record, trial, warm)
    assert not (tmp_path / "replays").exists()


def test_of_several_attempts_what_led_to_the_end_counts(tmp_path):
    rows = [(1, 0, 1.0), (2, 0, 2.0), (3, 0, 3.0), (2, 1, 4.0)]
    lines = [
        json.dumps({"eval_value": value, "ditk_ray_report": number, "ditk_ray_attempt": attempt})
        for number, attempt, value in rows
    ]
    (tmp_path / "metrics.jsonl").write_text("\n".join(lines) + "\n")

    found = read_evaluations(TrialRecord("t", {}, dir=str(tmp_path)))

    assert [row["eval_value"] for row in found] == [1.0, 4.0]


@pytest.mark.parametrize(
    ("old", "new", "difference"),
    [
        ([1.0, 2.0], [1.0, 2.0], None),
        ([1.0, 2.0], [1.0, 2.0 + 1e-9], None),
        ([1.0, 2.0], [1.0, 2.1], 1),
        ([1.0, 2.0], [1.0], 1),
        ([None], [None], None),
        ([None], [1.0], 0),
    ],
)
def test_two_runs_agree_if_every_evaluation_does(tmp_path, old, new, difference):
    rows = [[{"eval_value": value, "env_step": 0} for value in side] for side in (old, new)]

    replay = Replay("t", "eval_value", *rows, tmp_path)

    assert replay.first_difference == difference
    assert replay.agrees is (difference is None)
