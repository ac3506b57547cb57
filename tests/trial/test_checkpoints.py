from __future__ import annotations

import json
import math
from pathlib import Path
from types import SimpleNamespace

import pytest

from ditk_ray.trial import checkpoints
from ditk_ray.trial.checkpoints import (
    SHARE,
    Checkpoint,
    CheckpointMeta,
    CheckpointSaver,
    CheckpointStore,
    SeedProgress,
    agreed,
    policy_name,
)
from ditk_ray.trial.evaluation_hook import Evaluation
from ditk_ray.trial.plan import Saving


def commit(trial: Path, reports: int, text: str = "weights", **changes) -> Checkpoint:
    store = CheckpointStore(trial)
    staged = store.staging(0) / str(reports)
    staged.mkdir(parents=True)
    (staged / policy_name(0)).write_text(f"{text} {reports}")
    values = {"trial": trial.name, "reports": reports, "attempt": 0} | changes
    return store.commit(staged, CheckpointMeta(**values))


def test_a_checkpoint_comes_back_as_it_was_told(tmp_path):
    progress = {
        0: SeedProgress({"eval_value": 1.5, "loss": math.inf}),
        7: SeedProgress({"eval_value": 2.0}, True, {"score": 3.0}, "/somewhere/result.pkl"),
    }
    commit(tmp_path / "trial", 4, env_step=100, train_iter=9, time=2.5, seeds=progress)
    found = CheckpointStore(tmp_path / "trial").latest()
    assert found is not None
    assert (found.meta.reports, found.meta.env_step, found.meta.time) == (4, 100, 2.5)
    assert found.meta.seeds == progress
    assert (found.folder / policy_name(0)).read_text() == "weights 4"
    assert policy_name(7) not in found.meta.files


def test_only_the_newest_are_kept(tmp_path):
    for reports in range(1, 13):
        commit(tmp_path / "trial", reports)
    kept = sorted(path.name for path in (tmp_path / "trial/checkpoints").glob("[0-9]*"))
    assert kept == ["11", "12"]
    assert CheckpointStore(tmp_path / "trial").latest().meta.reports == 12


@pytest.mark.parametrize(
    "tear",
    [
        lambda folder: (folder / policy_name(0)).write_text("weig"),
        lambda folder: (folder / policy_name(0)).unlink(),
        lambda folder: (folder / "meta.json").write_text('{"trial": "tri'),
        lambda folder: (folder / "meta.json").write_text("{}"),
        lambda folder: (folder / "meta.json").unlink(),
    ],
)
def test_a_torn_checkpoint_is_passed_over(tmp_path, tear):
    commit(tmp_path / "trial", 1)
    tear(commit(tmp_path / "trial", 2).folder)
    assert CheckpointStore(tmp_path / "trial").latest().meta.reports == 1


def test_what_is_only_staged_is_no_checkpoint(tmp_path):
    store = CheckpointStore(tmp_path / "trial")
    staged = store.staging(0) / "1"
    staged.mkdir(parents=True)
    (staged / policy_name(0)).write_text("weights")
    assert store.latest() is None
    store.clear_staging()
    assert not staged.exists()


def test_a_seed_that_has_ended_keeps_its_files(tmp_path):
    trial = tmp_path / "trial"
    store = CheckpointStore(trial)
    for reports in (1, 2, 3, 4):
        staged = store.staging(0) / str(reports)
        staged.mkdir(parents=True)
        (staged / policy_name(1)).write_text(f"one {reports}")
        if reports == 1:
            (staged / policy_name(0)).write_text("zero 1")
        seeds = {0: SeedProgress(ended=reports > 1), 1: SeedProgress()}
        store.commit(staged, CheckpointMeta("trial", reports, 0, seeds=seeds))
    newest = store.latest()
    assert (newest.folder / policy_name(0)).read_text() == "zero 1"
    assert (newest.folder / policy_name(1)).read_text() == "one 4"


def test_another_trials_checkpoint_becomes_the_newest_with_its_counters(tmp_path):
    own, other = tmp_path / "trial_0", tmp_path / "trial_1"
    commit(own, 5)
    donated = commit(other, 3, "better", env_step=300)
    adopted = CheckpointStore(own).adopt(donated.folder, {"rate": 0.1})
    newest = CheckpointStore(own).latest()
    assert newest == adopted
    assert (newest.meta.reports, newest.meta.env_step) == (3, 300)
    assert (newest.folder / policy_name(0)).read_text() == "better 3"


def test_a_restart_after_an_exploit_keeps_what_was_trained_since(tmp_path):
    own, other = tmp_path / "trial_0", tmp_path / "trial_1"
    donated = commit(other, 3, "better")
    store = CheckpointStore(own)
    store.adopt(donated.folder, {"rate": 0.1})
    commit(own, 4, "own")
    assert store.adopt(donated.folder, {"rate": 0.1}).meta.reports == 4
    again = store.adopt(donated.folder, {"rate": 0.2})  # a new exploit, with other parameters
    assert again.meta.reports == 3
    assert (again.folder / policy_name(0)).read_text() == "better 3"


def test_a_copy_of_its_own_checkpoint_does_not_set_a_trial_back(tmp_path):
    own, saved = tmp_path / "trial_0", tmp_path / "tune"
    commit(own, 1)
    saved.mkdir()
    CheckpointStore(own).copy_latest(saved)
    commit(own, 2)
    assert CheckpointStore(own).adopt(saved, {}).meta.reports == 2


def test_a_copy_of_its_own_is_all_there_is_on_another_disk(tmp_path):
    own, saved = tmp_path / "here" / "trial_0", tmp_path / "tune"
    commit(own, 1)
    saved.mkdir()
    CheckpointStore(own).copy_latest(saved)
    elsewhere = tmp_path / "there" / "trial_0"
    assert CheckpointStore(elsewhere).adopt(saved, {}).meta.reports == 1
    assert (CheckpointStore(elsewhere).latest().folder / policy_name(0)).read_text() == "weights 1"


def test_a_folder_without_a_checkpoint_changes_nothing(tmp_path):
    (tmp_path / "empty").mkdir()
    store = CheckpointStore(tmp_path / "trial")
    store.copy_latest(tmp_path / "empty")
    assert store.adopt(tmp_path / "empty", {}) is None
    commit(tmp_path / "trial", 1)
    assert store.adopt(tmp_path / "empty", {}).meta.reports == 1


def test_a_checkpoint_survives_unknown_files_beside_it(tmp_path):
    commit(tmp_path / "trial", 1)
    (tmp_path / "trial/checkpoints/notes.txt").write_text("mine")
    (tmp_path / "trial/checkpoints/1b").mkdir()
    assert CheckpointStore(tmp_path / "trial").latest().meta.reports == 1


def test_saving_takes_at_most_a_twentieth_of_the_time(tmp_path, monkeypatch):
    now, spent = 0.0, 0.0

    def save(*_):
        nonlocal now, spent
        now, spent = now + 1.7, spent + 1.7

    monkeypatch.setattr(checkpoints, "time", SimpleNamespace(monotonic=lambda: now))
    parts = SimpleNamespace(save_policy=save, save=lambda *_: None)
    saver = CheckpointSaver(0, Saving(tmp_path), parts)
    for number in range(1000):
        now += 0.3  # an evaluation
        saver.save(Evaluation({}, save_checkpoint=print), number)
    assert SHARE == 20
    assert 0.8 * now / SHARE < spent <= 1.02 * now / SHARE


def test_the_first_seed_to_come_decides_for_all(tmp_path):
    file = tmp_path / "saves.json"
    wishes = {1: True, 2: False, 3: True}
    for number, wish in wishes.items():
        assert agreed(file, number, lambda wish=wish: wish) is wish
    for number, wish in wishes.items():
        assert agreed(file, number, lambda: pytest.fail("it is decided")) is wish


def test_an_agreement_that_a_full_disk_cut_short_is_made_anew(tmp_path):
    file = tmp_path / "saves.json"
    file.write_text("[3, [1,")
    assert agreed(file, 4, lambda: True)
    assert agreed(file, 4, lambda: pytest.fail("it is decided"))
    assert json.loads(file.read_text())
