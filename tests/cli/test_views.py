from __future__ import annotations

import io

import pytest
from rich.console import Console

from ditk_ray.cli.views import LiveDisplay, PlainDisplay
from ditk_ray.record.record import SweepRecord, TrialRecord, TrialState


@pytest.fixture
def record() -> SweepRecord:
    record = SweepRecord("demo", "eval_value", "max")
    for number in range(40):
        params = {f"policy.learn.parameter_{name}": 0.123456 for name in "abcdef"}
        trial = TrialRecord(f"trial_{number:05d}", params, state=TrialState.SUCCEEDED)
        record.trials[trial.id] = trial
        record.add_report(trial, {"eval_value": 5.0 * number, "env_step": 100, "time": 12.3})
    record.trials["trial_00003"].state = TrialState.RUNNING
    return record


@pytest.mark.parametrize("width", [80, 140])
def test_a_narrow_terminal_cuts_the_parameters_and_nothing_else(record, width):
    console = Console(width=width, height=24, record=True, file=io.StringIO())
    console.print(LiveDisplay(50, console)._view(record))
    text = console.export_text()
    lines = text.splitlines()
    assert max(len(line) for line in lines) <= width
    assert len(lines) <= 24
    assert "demo" in lines[0]
    assert "39/50 trials done" in lines[0]
    headings = "trial state best eval_value env_step time parameters"
    assert lines[3].split() == headings.split()
    assert "trial_00003  running" in text
    assert "trial_00039  succeeded" in text


def test_what_ended_a_trial_is_shown_where_there_is_room(record):
    record.trials["trial_00039"].why = "plateau(eval_value, 5)"
    console = Console(width=100, height=24, record=True, file=io.StringIO())
    console.print(LiveDisplay(50, console)._view(record))
    (line,) = [row for row in console.export_text().splitlines() if row.startswith("trial_00039")]
    assert line.split()[:5] == ["trial_00039", "succeeded", "195", "100", "12.3s"]
    assert "ended by plateau(eval_value, 5); param" in line


def test_plain_lines_say_what_ended_and_how_far_the_sweep_is(record, capsys):
    display = PlainDisplay(50)
    trial = record.trials["trial_00039"]
    display.changed(record, trial)
    display.reported(record, trial)
    said = capsys.readouterr().err
    assert "trial_00039 succeeded, best eval_value 195 (39/50 done)" in said
    assert "trial_00039 leads: eval_value 195, 100 steps" in said


def test_a_plain_line_names_the_rule_that_stopped_a_trial(record, capsys):
    trial = record.trials["trial_00001"]
    trial.state, trial.why = TrialState.STOPPED, "plateau(eval_value, 5)"
    PlainDisplay(50).changed(record, trial)
    said = capsys.readouterr().err
    assert "trial_00001 stopped by plateau(eval_value, 5), best eval_value 5 (39/50 done)" in said


def test_only_a_better_score_is_worth_a_line(record, capsys):
    display = PlainDisplay(50)
    display.reported(record, record.trials["trial_00010"])
    capsys.readouterr()
    display.reported(record, record.trials["trial_00009"])
    assert capsys.readouterr().err == ""
