"""A trial outlasts what befalls it: real forks, real faults, real training on CartPole."""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
import subprocess
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ditk_ray.config.engine_config import load_engine_config
from ditk_ray.config.resources import TrialResources
from ditk_ray.errors import NeedsMemoryError
from ditk_ray.trial.checkpoints import CheckpointStore, policy_name
from ditk_ray.trial.plan import TrialPlan
from ditk_ray.trial.reports import ATTEMPT, ENDED, FAILURE, FAILURES, REPORT, read_reports
from ditk_ray.trial.trainable import RetryingTrial
from ditk_ray.util.units import show_seconds
from tests.processes import PATIENCE, SLACK, processes_in, wait_until
from tests.trial import experiments
from tests.trial.experiments import attempt_here, make_plan

pytestmark = pytest.mark.engine

EVERY = {"checkpoints": True, "checkpoints_every_evaluation": True}


def lasting(folder: Path, warm: Any, **changes: Any) -> RetryingTrial:
    return planned(make_plan(folder, **changes), folder, warm)


def planned(plan: TrialPlan, folder: Path, warm: Any) -> RetryingTrial:
    start = partial(attempt_here, plan, {}, folder / "trial", warm)
    return RetryingTrial(plan, folder / "trial", start)


def to_end(trial: RetryingTrial) -> list[dict[str, Any]]:
    reports = []
    try:
        while not reports or ENDED not in reports[-1]:
            reports.append(trial.next_report())
    finally:
        trial.close()
    return reports


def entry_to_end(entry: Any, folder: Path, warm: Any, **changes: Any) -> list[dict[str, Any]]:
    return to_end(lasting(folder, warm, entry=entry, limits={}, **changes))


def leader(folder: Path) -> Any:
    """Return the process that trains."""
    return next(p for p in processes_in(folder) if os.getpgid(p.pid) == p.pid)


def test_after_kill_9_a_trial_goes_on_from_its_checkpoint(warm, tmp_path):
    trial = lasting(tmp_path, warm, checkpoints=True, limits={"max_env_step": 500})
    try:
        before = [trial.next_report() for _ in range(3)]
        newest = CheckpointStore(tmp_path / "trial").latest()
        leader(tmp_path).kill()
        after = to_end(trial)
    finally:
        trial.close()
    known = [report for report in before + after if report[ATTEMPT] == 0]
    went_on = [report for report in after if report[ATTEMPT] == 1]
    saved = newest.meta
    assert saved.reports >= 1
    # The first report of the new attempt is new: later than the checkpoint, by one evaluation.
    first = went_on[0]
    assert saved.reports < first[REPORT] <= known[-1][REPORT] + 1
    assert first["train_iter"] > saved.train_iter
    assert first["env_step"] > saved.env_step
    assert first["time"] > saved.time
    (failure,) = first[FAILURES]
    assert (failure["kind"], failure["attempt"]) == ("lost", 0)
    assert "SIGKILL" in failure["error"]
    rows = read_reports(tmp_path / "trial/metrics.jsonl")
    assert [row[REPORT] for row in rows] == list(range(1, len(rows) + 1))
    assert [row["env_step"] for row in rows] == sorted(row["env_step"] for row in rows)
    assert went_on[-1][ENDED] == "training"


def test_a_restored_policy_is_as_good_as_it_was(warm, tmp_path):
    """Train until CartPole is half solved, go on from the checkpoint, and look at the score."""
    trial = tmp_path / "trial"
    base = load_engine_config(experiments.CARTPOLE).overlaid({"env.stop_value": 10**9})
    plan = make_plan(tmp_path, base=base, limits={}, **EVERY)
    first = attempt_here(plan, {}, trial, warm)
    try:
        wait_until(lambda: first.next_report()["eval_value"] >= 120, 100, "a good policy")
    finally:
        first.close()
    saved = CheckpointStore(trial).latest().meta
    again = attempt_here(plan, {}, trial, warm)
    try:
        reports = [again.next_report() for _ in range(4)]
    finally:
        again.close()
    assert [report[REPORT] for report in reports] == [saved.reports + n for n in (1, 2, 3, 4)]
    # An untrained policy has about 10, and one that trains anew has that for long. A single
    # evaluation may be bad: what is in the buffer has to be collected again.
    assert sum(report["eval_value"] for report in reports) / 4 > 60


def test_a_trials_checkpoint_is_loaded_by_di_engine_itself(warm, tmp_path):
    plan = make_plan(tmp_path, **EVERY)
    reports = to_end(planned(plan, tmp_path, warm))
    found = CheckpointStore(tmp_path / "trial").latest()
    wishes = {
        "policy.learn.resume_training": True,
        "policy.learn.learner.hook.load_ckpt_before_run": str(found.folder / policy_name(0)),
    }
    base = load_engine_config(experiments.CARTPOLE).overlaid(wishes)
    alone = attempt_here(make_plan(tmp_path, base=base), {}, tmp_path / "alone", warm)
    try:
        report = alone.next_report()
    finally:
        alone.close()
    assert report["train_iter"] == found.meta.train_iter > 0
    assert report["env_step"] == found.meta.env_step > 0
    assert report[REPORT] == 1
    assert reports[-1][ENDED] == "training"


def test_a_torn_checkpoint_costs_the_evaluations_since_the_one_before(warm, tmp_path):
    plan = make_plan(tmp_path, **EVERY)
    first = attempt_here(plan, {}, tmp_path / "trial", warm)
    try:
        for _ in range(3):
            first.next_report()
    finally:
        first.close()
    newest = CheckpointStore(tmp_path / "trial").latest()
    file = newest.folder / policy_name(0)
    file.write_bytes(file.read_bytes()[:1000])
    again = attempt_here(plan, {}, tmp_path / "trial", warm)
    try:
        assert again.next_report()[REPORT] == newest.meta.reports == 3
    finally:
        again.close()


def test_a_trial_that_hangs_is_ended_whole_and_tried_again(warm, tmp_path):
    begun = time.monotonic()
    reports = entry_to_end(experiments.hang_once, tmp_path, warm, startup_time=4.0 * SLACK)
    assert time.monotonic() - begun < 30 * PATIENCE
    assert (reports[0]["eval_value"], reports[0][ATTEMPT]) == (7.0, 1)
    limit = show_seconds(4.0 * SLACK)
    assert f"no first evaluation within {limit}" in reports[0][FAILURES][0]["error"]
    assert processes_in(tmp_path) == []


def test_a_trial_that_hangs_each_time_has_failed_in_the_end(warm, tmp_path):
    seconds = 1.5 * SLACK
    changes = {"stall_time": seconds, "retries": {"stall": 1}}
    reports = entry_to_end(experiments.evaluate_then_hang, tmp_path, warm, **changes)
    assert [report.get("eval_value") for report in reports] == [0.0, 1.0, 0.0, 1.0, None]
    assert reports[-1][ENDED] == "failed"
    assert reports[-1][FAILURE]["kind"] == "stall"
    assert f"no next evaluation within {show_seconds(seconds)}" in reports[-1][FAILURE]["error"]
    assert [failure["attempt"] for failure in reports[-1][FAILURES]] == [0, 1]
    assert processes_in(tmp_path) == []


def test_a_bug_is_not_tried_again_and_names_its_log(warm, tmp_path):
    (report,) = entry_to_end(experiments.raise_value_error, tmp_path, warm)
    assert report[ENDED] == "failed"
    assert report[FAILURE]["kind"] == "bug"
    assert report[FAILURE]["error"].startswith("ValueError: no such luck (experiments.py:")
    log = Path(report[FAILURE]["log"]).read_text()
    assert "about to fail" in log
    assert "Traceback (most recent call last)" in log
    (line,) = (tmp_path / "trial/failures.jsonl").read_text().splitlines()
    assert json.loads(line) == report[FAILURE]


def test_an_allocation_past_the_limit_is_tried_again_once(warm, tmp_path):
    reports = entry_to_end(
        experiments.allocate_a_gigabyte, tmp_path, warm, resources=TrialResources(memory=2**29)
    )
    kinds = [failure["kind"] for failure in reports[-1][FAILURES]]
    assert kinds == ["out_of_memory", "out_of_memory"]
    assert "Memory" in reports[-1][FAILURE]["error"]
    assert reports[-1][ENDED] == "failed"


def test_a_process_that_was_killed_beyond_its_limit_ran_out_of_memory(warm, tmp_path):
    changes = {"resources": TrialResources(memory=2**27), "retries": {}}
    (report,) = entry_to_end(
        experiments.outgrow_and_be_killed, tmp_path / "beyond", warm, **changes
    )
    assert report[FAILURE]["kind"] == "out_of_memory"
    changes["resources"] = TrialResources(memory=2**30)
    (report,) = entry_to_end(
        experiments.outgrow_and_be_killed, tmp_path / "within", warm, **changes
    )
    assert report[FAILURE]["kind"] == "lost"


def test_with_more_memory_allowed_a_trial_asks_for_it_and_then_has_enough(warm, tmp_path):
    small = TrialResources(memory=2**29, max_memory=2**31)
    with pytest.raises(NeedsMemoryError) as caught:
        entry_to_end(experiments.allocate_a_gigabyte, tmp_path, warm, resources=small)
    assert caught.value.memory == 2**31
    large = small.as_given({"CPU": 1.0, "memory": float(caught.value.memory)})
    (report,) = entry_to_end(experiments.allocate_a_gigabyte, tmp_path, warm, resources=large)
    assert report["eval_value"] == 2**27
    assert [failure["kind"] for failure in report[FAILURES]] == ["out_of_memory"]


def test_a_policy_whose_outputs_are_no_numbers_is_pruned_not_failed(warm, tmp_path):
    reports = entry_to_end(experiments.diverge, tmp_path, warm)
    assert [report.get(ENDED) for report in reports] == [None, "nan"]
    assert math.isnan(reports[-1]["eval_value"])
    assert FAILURES not in reports[-1]


def test_a_trial_that_is_cancelled_ends_at_once_with_all_below_it(warm, tmp_path):
    base = experiments.with_subprocess_envs(load_engine_config(experiments.CARTPOLE))
    trial = lasting(tmp_path, warm, base=base, limits={})
    last = trial.next_report()
    assert len(processes_in(tmp_path)) > 5
    (tmp_path / "trial/cancel").touch()
    begun = time.monotonic()
    reports = to_end(trial)
    assert time.monotonic() - begun < 5 * PATIENCE
    assert reports[-1][ENDED] == "cancelled"
    assert reports[-1]["eval_value"] == (reports[-2:-1] or [last])[0]["eval_value"]
    assert processes_in(tmp_path) == []


def test_a_buffer_is_put_back_on_request(warm, tmp_path):
    plan = make_plan(tmp_path, checkpoint_buffer=True, **EVERY)
    to_end(planned(plan, tmp_path, warm))
    found = CheckpointStore(tmp_path / "trial").latest()
    assert "seed_0.buffer.pkl" in found.meta.files
    probe = make_plan(
        tmp_path, entry=experiments.count_restored_transitions, limits={}, checkpoints=True
    )
    (report,) = to_end(planned(probe, tmp_path, warm))
    assert report["in_buffer"] == found.meta.env_step > 0


def test_every_kind_of_buffer_can_be_moved_into_a_smaller_one(warm, tmp_path):
    (report,) = entry_to_end(experiments.refill_buffers, tmp_path, warm)
    kinds = ("naive", "advanced", "deque")
    assert [report[kind] for kind in kinds] == [1.0] * 3


def test_a_policy_keeps_what_di_engine_forgets_but_follows_its_own_config(warm, tmp_path):
    (report,) = entry_to_end(experiments.hand_over_a_policy, tmp_path, warm)
    assert report["trained"] != report["before"] == report["by_engine"]
    assert report["restored"] == report["log_alpha"] == pytest.approx(report["trained"])
    assert report["is_optimised"]
    # A scheduler gave it another learning rate: DI-engine's own state would undo that.
    assert (report["loaded_rate"], report["rate"]) == (1e-3, 5e-4)


def test_a_target_network_is_replaced_when_it_would_have_been(warm, tmp_path):
    (report,) = entry_to_end(experiments.hand_over_a_target_network, tmp_path, warm)
    assert (report["by_engine"], report["restored"]) == (0, 3)


@pytest.fixture
def small_disk(tmp_path):
    """A disk of 4 MB."""
    folder = tmp_path / "small"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(folder)]
    if subprocess.run(command, capture_output=True).returncode:
        pytest.skip("mounting is not permitted")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def fill(disk: Path, leaving: int) -> Path:
    filler = disk / "filler"
    filler.write_bytes(bytes(shutil.disk_usage(disk).free - leaving))
    return filler


def test_a_trial_whose_disk_is_full_waits_for_room(warm, tmp_path, small_disk, monkeypatch):
    monkeypatch.setattr("ditk_ray.trial.trainable.BACKOFF_SECONDS", 1.0)
    filler = fill(small_disk, leaving=300_000)
    trial = lasting(small_disk, warm)

    def make_room() -> None:
        wait_until(lambda: trial._log.failures, 60, "it to fail")  # no room for them on disk
        filler.unlink()

    room = threading.Thread(target=make_room)
    room.start()
    reports = to_end(trial)
    room.join()
    assert reports[-1][ENDED] == "training"
    assert {failure["kind"] for failure in reports[-1][FAILURES]} == {"disk_full"}


def test_a_disk_too_small_for_checkpoints_does_not_disturb_the_training(warm, tmp_path, small_disk):
    (tmp_path / "trial").mkdir()
    (tmp_path / "trial/checkpoints").symlink_to(small_disk)
    fill(small_disk, leaving=200_000)
    reports = to_end(lasting(tmp_path, warm, checkpoints=True))
    assert reports[-1][ENDED] == "training"
    assert FAILURES not in reports[-1]
    assert CheckpointStore(tmp_path / "trial").latest() is None
    log = (tmp_path / "trial/attempt_0/log.txt").read_text()
    assert "no checkpoint at evaluation 1" in log


def computed(folder: Path) -> list[tuple[int, float, float]]:
    lines = (folder / "trial/attempt_0/times.txt").read_text().splitlines()
    rows = [line.split() for line in lines]
    return [(int(seed), float(begun), float(ended)) for seed, begun, ended in rows]


def test_with_one_cpu_seeds_take_turns_by_evaluation(warm, tmp_path):
    changes = {"seeds": (0, 1, 2), "resources": TrialResources(cpu=1)}
    reports = entry_to_end(experiments.evaluate_slowly, tmp_path, warm, **changes)
    assert [report["env_step"] for report in reports[:-1]] == [0, 1, 2, 3, 4]
    order = [seed for seed, _, _ in sorted(computed(tmp_path), key=lambda row: row[2])]
    assert sorted(order[:6]) != [0, 0, 0, 0, 0, 1]  # not one after the other
    for number in range(1, 5):
        counts = [order[: 3 * number].count(seed) for seed in (0, 1, 2)]
        assert max(counts) - min(counts) <= 2


def test_seeds_that_stand_still_are_ended_with_all_below_them(warm, tmp_path):
    base = experiments.with_subprocess_envs(load_engine_config(experiments.CARTPOLE))
    plan = make_plan(tmp_path, base=base, limits={}, seeds=(0, 1), resources=TrialResources(cpu=1))
    run = attempt_here(plan, {}, tmp_path / "trial", warm)
    run.next_report()
    wait_until(lambda: "stopped" in states(tmp_path), 10, "a seed to stand still")
    begun = time.monotonic()
    run.close()
    assert time.monotonic() - begun < 10 * PATIENCE
    assert processes_in(tmp_path) == []


def states(folder: Path) -> set[str]:
    return {process.status() for process in processes_in(folder)}


def test_seeds_go_on_together_from_one_checkpoint(warm, tmp_path):
    trial = lasting(tmp_path, warm, seeds=(3, 5), **EVERY)
    try:
        first = [trial.next_report() for _ in range(2)]
        for process in processes_in(tmp_path):
            process.send_signal(signal.SIGKILL)
        rest = to_end(trial)
    finally:
        trial.close()
    known = CheckpointStore(tmp_path / "trial").latest()
    assert set(known.meta.seeds) == {3, 5}
    again = next(report for report in rest if report[ATTEMPT] == 1)
    assert again[REPORT] >= 2 and again["env_step"] > first[0]["env_step"]
    assert {"eval_value_seed_3", "eval_value_seed_5", "eval_value_low"} <= set(again)
    assert rest[-1][ENDED] == "training"


def test_a_seed_that_had_ended_is_not_run_again(warm, tmp_path):
    entry = experiments.end_at_once_with_seed_0
    changes = {"seeds": (0, 1), "resources": TrialResources(cpu=2), **EVERY}
    trial = lasting(tmp_path, warm, entry=entry, limits={}, **changes)
    try:
        wait_until(lambda: trial.next_report()[REPORT] >= 4, 60, "seed 0 to end")
        leader(tmp_path).kill()
        wait_until(lambda: trial.next_report()[ATTEMPT] == 1, 60, "a new attempt")
        report = trial.next_report()
    finally:
        trial.close()
    assert report["eval_value_seed_0"] == 1.0
    assert (tmp_path / "trial/attempt_1/seed_1").exists()
    assert not (tmp_path / "trial/attempt_1/seed_0").exists()
