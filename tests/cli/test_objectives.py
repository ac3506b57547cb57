"""Several objectives, and what ended trials early, as the commands show them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ditk_ray.cli.main import main
from ditk_ray.cli.tune import finish
from ditk_ray.config.terms import Objective
from ditk_ray.record.record import TrialState
from ditk_ray.sweep.run import SweepOutcome
from tests.record.written_sweep import WrittenSweep


@pytest.fixture
def sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> WrittenSweep:
    monkeypatch.chdir(tmp_path)
    made = WrittenSweep(tmp_path / "ditk_ray_results/mine")
    made.record.more_objectives = (Objective("env_step", "min"),)
    made.record.why = "sweep.trials>=4"
    made.trial(0, scores=[(5.0, 10)], lr=0.1)
    made.trial(1, scores=[(9.0, 40)], lr=0.2)
    rule = "plateau(eval_value, 5)"
    made.trial(2, TrialState.STOPPED, scores=[(4.0, 20)], why=rule, lr=0.3)
    made.trial(3, TrialState.FAILED, error="it broke")
    return made.write()


def pareto_lines(shown: str) -> list[str]:
    """Return the lines from the title of the Pareto set on, without its headings."""
    lines = shown.splitlines()
    start = lines.index("Pareto set (max eval_value, min env_step): 2 of 4 trials")
    assert lines[start + 1].split() == ["trial", "eval_value", "env_step", "parameters"]
    return lines[start + 2 :]


def assert_set_is_shown(shown: str) -> None:
    first, second, *_ = pareto_lines(shown)
    assert first.split() == ["trial_00001", "9", "40", "lr=0.2"]
    assert second.split() == ["trial_00000", "5", "10", "lr=0.1"]


def test_status_shows_the_pareto_set_and_why_something_ended(sweep, capsys):
    assert main(["status", "mine"]) == 0
    shown = capsys.readouterr().out
    assert_set_is_shown(shown)
    assert "mine: finished in 1m30s (ended by sweep.trials>=4); 4/4 trials done" in shown
    assert "ended by plateau(eval_value, 5); lr=0.3" in shown
    assert "best: trial_00001, eval_value 9" in shown


def test_status_of_one_state_is_about_trials_of_that_state(sweep, capsys):
    main(["status", "mine", "--state", "failed"])
    assert "Pareto" not in capsys.readouterr().out


def test_best_is_the_best_by_the_first_objective_and_shows_the_set(sweep, capsys):
    assert main(["best", "mine"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("mine: trial_00001, eval_value 9 at 40")
    assert_set_is_shown(shown)


@pytest.mark.parametrize("command", ["status", "best"])
def test_json_names_the_objectives_and_the_set(sweep, capsys, command):
    assert main([command, "mine", "--format", "json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["pareto"] == ["trial_00001", "trial_00000"]
    assert data["objectives"][1] == {"metric": "env_step", "mode": "min"}


def test_the_summary_shows_the_set_and_the_best(sweep, capsys):
    assert finish(SweepOutcome(sweep.record, sweep.folder, 90.0), "table") == 0
    shown = capsys.readouterr().out
    assert_set_is_shown(shown)
    assert "mine: finished in 1m30s (ended by sweep.trials>=4); 4/4 trials done\n" in shown
    assert "best: trial_00001, eval_value 9" in shown


def test_with_one_objective_there_is_no_set_to_show(tmp_path, capsys):
    made = WrittenSweep(tmp_path / "one")
    made.trial(0, scores=[(5.0, 10)])
    made.write()
    for command in ("status", "best"):
        main([command, str(made.folder)])
        assert "Pareto" not in capsys.readouterr().out
    main(["best", str(made.folder), "--format", "json"])
    assert json.loads(capsys.readouterr().out)["pareto"] == []


def test_a_wrong_mode_is_refused_with_the_field(capsys, tmp_path):
    job = tmp_path / "job.py"
    job.write_text(
        "from ditk_ray import JobCfg\nclass A(JobCfg):\n    config = ({'policy': {}}, {})\n"
    )
    command = ["tune", "--cfg_file", str(job), "--metric", "eval_value,time", "--mode", "max,mim"]
    assert main(command) == 2
    assert "A.mode: it is 'max,mim'" in capsys.readouterr().err
