"""`ditk-ray best`, on folders made for the test."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ditk_ray.cli.main import main
from ditk_ray.record.record import SweepStatus, TrialState
from tests.record.written_sweep import WrittenSweep


@pytest.fixture
def sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> WrittenSweep:
    monkeypatch.chdir(tmp_path)
    made = WrittenSweep(tmp_path / "ditk_ray_results/mine")
    made.trial(0, scores=[(5.0, 10)], **{"policy.lr": 0.00012345678})
    best = made.trial(1, scores=[(9.0, 10), (4.0, 20)], **{"policy.lr": 0.1, "kind": "[red]exp"})
    made.trial(2, TrialState.FAILED, error="it broke")
    checkpoint = made.log(1, "x").parent / "exp/ckpt/ckpt_best.pth.tar"
    checkpoint.parent.mkdir(parents=True)
    checkpoint.touch()
    (Path(best.dir) / "result.pkl").touch()
    return made.write()


def test_the_best_trial_is_shown_with_its_parameters_files_and_command(sweep, capsys):
    assert main(["best", "mine"]) == 0
    shown = capsys.readouterr().out
    assert "trial_00001, eval_value 9 at 10 environment steps" in shown
    assert "policy.lr = 0.1" in shown
    assert '"[red]exp"' in shown
    folder = "ditk_ray_results/mine/trial_00001"
    assert f"config      {folder}/config.py" in shown
    assert f"result      {folder}/result.pkl" in shown
    assert f"checkpoint  {folder}/attempt_0/exp/ckpt/ckpt_best.pth.tar" in shown
    assert f"run it again: python {folder}/config.py" in shown


def test_json_gives_all_that_is_known(sweep, capsys):
    assert main(["best", "mine", "--format", "json"]) == 0
    best = json.loads(capsys.readouterr().out)
    assert (best["id"], best["score"], best["env_step"]) == ("trial_00001", 9, 10)
    assert best["metrics"]["env_step"] == 20
    assert best["params"]["policy.lr"] == 0.1
    assert best["files"]["config"] == f"{sweep.folder}/trial_00001/config.py"
    assert len(best["files"]["results"]) == len(best["files"]["checkpoints"]) == 1


def test_the_n_best_are_a_table_in_their_order(sweep, capsys):
    assert main(["best", "mine", "--top", "5"]) == 0
    shown = capsys.readouterr().out
    assert shown.index("trial_00001") < shown.index("trial_00000")
    assert "trial_00002" not in shown  # it has no score
    assert main(["best", "mine", "--top", "1", "--format", "json"]) == 0
    assert [item["id"] for item in json.loads(capsys.readouterr().out)] == ["trial_00001"]


def test_of_equal_scores_the_one_with_fewer_steps_comes_first(tmp_path, capsys):
    made = WrittenSweep(tmp_path / "equal")
    made.trial(0, scores=[(200.0, 3000)])
    made.trial(1, scores=[(200.0, 1000)])
    made.write()
    main(["best", str(made.folder), "--top", "2", "--format", "json"])
    ids = [item["id"] for item in json.loads(capsys.readouterr().out)]
    assert ids == ["trial_00001", "trial_00000"]


def test_the_smallest_is_best_if_the_sweep_says_so(tmp_path, capsys):
    made = WrittenSweep(tmp_path / "small")
    made.record.mode = "min"
    made.trial(0, scores=[(5.0, 10)])
    made.trial(1, scores=[(2.0, 10)])
    made.write()
    main(["best", str(made.folder), "--format", "json"])
    assert json.loads(capsys.readouterr().out)["id"] == "trial_00001"


def test_without_a_score_it_says_so_and_leaves_with_1(tmp_path, capsys):
    made = WrittenSweep(tmp_path / "none")
    made.trial(0, TrialState.RUNNING)
    made.write(SweepStatus.RUNNING)
    assert main(["best", str(made.folder)]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert "none: no trial has a score (running; 1 trial: 1 running)" in err


def test_files_that_are_not_there_are_left_out(tmp_path, capsys):
    made = WrittenSweep(tmp_path / "bare")
    trial = made.trial(0, scores=[(1.0, 1)])
    (Path(trial.dir) / "config.py").unlink()
    made.write()
    assert main(["best", str(made.folder)]) == 0
    shown = capsys.readouterr().out
    assert "config" not in shown
    assert "run it again" not in shown
