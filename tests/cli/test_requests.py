from __future__ import annotations

import pytest

from ditk_ray.cli.main import main
from ditk_ray.record.record import SweepRecord, SweepStatus, TrialRecord, TrialState, write_record


@pytest.fixture
def finished(tmp_path):
    folder = tmp_path / "done"
    folder.mkdir()
    record = SweepRecord("done", "eval_value", "max", SweepStatus.FINISHED)
    record.trials["trial_00000"] = TrialRecord("trial_00000", {}, TrialState.SUCCEEDED)
    write_record(record, folder)
    return tmp_path


@pytest.mark.parametrize(
    "asked",
    [
        ["pause", "done", "0"],
        ["continue", "done", "0", "--priority", "3"],
        ["priority", "done", "0", "-1"],
        ["cancel", "done"],
    ],
    ids=lambda words: words[0],
)
def test_a_sweep_that_does_not_run_is_not_asked(finished, capsys, asked):
    assert main([*asked, "--storage_path", str(finished)]) == 2
    assert "does not run (finished)" in capsys.readouterr().err
    assert not (finished / "done" / "requests").exists()


def test_one_that_was_interrupted_can_be_resumed_first(finished, capsys):
    record = SweepRecord("done", "eval_value", "max", SweepStatus.INTERRUPTED)
    write_record(record, finished / "done")
    assert main(["cancel", "done", "--storage_path", str(finished)]) == 2
    assert "ditk-ray resume" in capsys.readouterr().err


def test_a_trial_that_is_not_there_is_said_with_those_that_are(finished, capsys):
    assert main(["pause", "done", "7", "--storage_path", str(finished)]) == 2
    assert "trial_00000" in capsys.readouterr().err
