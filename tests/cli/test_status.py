"""`ditk-ray status`, on folders made for the test."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from ditk_ray.cli.main import main
from ditk_ray.record.record import SweepStatus, TrialState
from ditk_ray.util.locks import sweep_lock
from tests.processes import PATIENCE, wait_until
from tests.record.written_sweep import WrittenSweep

COMMAND = str(Path(sys.executable).with_name("ditk-ray"))


@pytest.fixture
def sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> WrittenSweep:
    monkeypatch.chdir(tmp_path)
    made = WrittenSweep(tmp_path / "ditk_ray_results/mine")
    made.trial(0, scores=[(5.0, 10)], **{"policy.lr": 0.1})
    made.trial(1, scores=[(9.0, 20)], **{"policy.lr": 0.2})
    failed = made.trial(2, TrialState.FAILED)
    log = made.log(2, "line 1\nline 2\nValueError: no\n")
    failed.error = f"ValueError: no [log: {log}]"
    return made


def shown(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["status", *arguments]) == 0
    return capsys.readouterr().out


def test_a_finished_sweep_is_shown_as_a_whole(sweep, capsys):
    sweep.write().recorded("embedded")
    text = shown(capsys, "mine")
    assert "mine: finished in 1m30s; 3/3 trials done" in text
    assert "3 trials: 1 failed, 2 succeeded" in text
    assert "best: trial_00001, eval_value 9 at 20 environment steps" in text
    assert text.index("trial_00001  succeeded") < text.index("trial_00000  succeeded")
    assert "trial_00002 failed: ValueError: no" in text
    assert "| line 2" in text
    assert "everything is in ditk_ray_results/mine" in text


def test_a_sweep_whose_process_is_gone_is_dead(sweep, capsys):
    sweep.write(SweepStatus.RUNNING)
    text = shown(capsys, "mine")
    assert "mine: dead" in text
    assert "its process is gone (killed?)" in text
    data = json.loads(shown(capsys, "mine", "--format", "json"))
    assert (data["status"], data["is_alive"]) == ("dead", False)


def test_a_running_sweep_says_for_how_long_and_how_much_is_done(sweep, capsys):
    sweep.record.trials["trial_00000"].state = TrialState.RUNNING
    sweep.write(SweepStatus.RUNNING)
    with sweep_lock(sweep.folder):
        text = shown(capsys, "mine")
        data = json.loads(shown(capsys, "mine", "--format", "json"))
    assert "mine: running for" in text
    assert "2/3 trials done" in text
    assert data["is_alive"] is True


def test_json_has_the_whole_record_and_where_it_is_recorded(sweep, capsys):
    sweep.write().recorded("http://me:pass@host:5000")
    data = json.loads(shown(capsys, "mine", "--format", "json"))
    assert [trial["id"] for trial in data["trials"]] == [f"trial_0000{n}" for n in range(3)]
    assert data["best"]["score"] == 9
    assert (data["trials_done"], data["trials_total"]) == (3, 3)
    assert data["mlflow"]["run_id"] == "abc123"
    assert data["mlflow"]["is_complete"] is True
    assert "pass@" not in json.dumps(data)


def test_only_trials_of_one_state_are_shown_if_asked(sweep, capsys):
    sweep.write()
    text = shown(capsys, "mine", "--state", "failed")
    assert "trial_00002  failed" in text
    assert "trial_00001  succeeded" not in text
    data = json.loads(shown(capsys, "mine", "--state", "failed", "--format", "json"))
    assert [trial["id"] for trial in data["trials"]] == ["trial_00002"]
    text = shown(capsys, "mine", "--state", "paused")
    assert "no trial is paused" in text
    assert "ValueError" not in text


def test_more_than_twenty_trials_are_shown_only_if_asked(sweep, capsys):
    for number in range(3, 30):
        sweep.trial(number, scores=[(1.0, 1)])
    sweep.write()
    text = shown(capsys, "mine")
    assert "... and 10 more trials (--all shows them)" in text
    assert text.count("succeeded  ") == 20
    assert "more trials" not in shown(capsys, "mine", "--all")


def test_what_was_delivered_to_mlflow_is_said_with_what_to_look_at(sweep, capsys):
    sweep.write().recorded("embedded")
    text = shown(capsys, "mine")
    assert "fully recorded in MLflow (sqlite:///" in text
    assert "ditk-ray ui mine" in text


def test_what_was_not_delivered_is_said_with_the_command_that_sends_it(sweep, capsys):
    uri = "http://me:secret-1234@host:5000"
    sweep.write().recorded(uri, delivered=0.5)
    sweep.note_delivery_error(uri, f"ConnectionError: {uri} is away")
    text = shown(capsys, "mine")
    assert "not fully recorded in MLflow" in text
    assert "ConnectionError" in text
    assert "ditk-ray sync mine" in text
    assert "secret-1234" not in text


def test_a_journal_that_lacks_its_end_is_sent_again(sweep, capsys):
    sweep.write(SweepStatus.RUNNING).recorded("embedded", has_end=False)
    assert "its end is missing; send it with: ditk-ray sync mine" in shown(capsys, "mine")


def test_files_that_are_missing_in_mlflow_are_sent_again(sweep, capsys):
    sweep.write().recorded("embedded", files_missing=["", "trial_00000"])
    missing = "files of 2 runs are missing; send it with: ditk-ray sync mine"
    assert missing in shown(capsys, "mine")
    data = json.loads(shown(capsys, "mine", "--format", "json"))
    assert (data["mlflow"]["files_missing"], data["mlflow"]["is_complete"]) == (2, False)


def test_records_are_not_sent_nowhere(sweep, capsys):
    sweep.write().recorded("embedded")
    assert main(["sync", str(sweep.folder), "--mlflow_uri", "none"]) == 2
    assert "--mlflow_uri none: is not a store to send records to" in capsys.readouterr().err


def test_a_sweep_that_is_not_recorded_says_so(sweep, capsys):
    sweep.write()
    assert "not recorded in MLflow" in shown(capsys, "mine")


def test_a_sweep_elsewhere_is_named_so_that_the_command_works(tmp_path, capsys):
    made = WrittenSweep(tmp_path / "other place/mine").write().recorded("embedded")
    assert f"ditk-ray ui '{made.folder}'" in shown(capsys, str(made.folder))


def test_without_a_sweep_all_are_listed_the_newest_first(sweep, capsys):
    sweep.write().written_at(2000)
    WrittenSweep(sweep.folder.parent / "older").write(SweepStatus.RUNNING).written_at(1000)
    lines = shown(capsys).splitlines()
    assert lines[0].split()[:2] == ["SWEEP", "STATUS"]
    assert lines[1].split()[:4] == ["mine", "finished", "3/3", "9"]
    assert lines[2].split()[:4] == ["older", "dead", "0/3", "-"]
    data = json.loads(shown(capsys, "--format", "json"))
    assert [(row["name"], row["best_score"]) for row in data] == [("mine", 9), ("older", None)]


def test_a_sweep_that_cannot_be_read_does_not_hide_the_others(sweep, capsys):
    sweep.write()
    broken = WrittenSweep(sweep.folder.parent / "broken").write()
    (broken.folder / "sweep.json").write_text("{")
    assert main(["status"]) == 0
    out, err = capsys.readouterr()
    assert "mine" in out
    assert "left out" in err
    assert "broken" in err


def test_an_empty_storage_says_how_to_begin(tmp_path, capsys):
    assert main(["status", "--storage_path", str(tmp_path)]) == 0
    assert "ditk-ray tune" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--watch"], "needs a sweep"),
        (["mine", "--watch", "--format", "json"], "does not print JSON"),
        (["mime"], "did you mean 'mine'"),
    ],
)
def test_what_cannot_be_shown_is_refused(sweep, capsys, arguments, said):
    sweep.write()
    assert main(["status", *arguments]) == 2
    assert said in capsys.readouterr().err


def test_watching_a_sweep_that_has_ended_shows_it_once(sweep, capsys):
    sweep.write()
    assert shown(capsys, "mine", "--watch") == shown(capsys, "mine")


def test_watching_prints_a_line_for_each_change_until_the_sweep_ends(sweep):
    first = sweep.record.trials["trial_00000"]
    first.state = TrialState.RUNNING
    sweep.write(SweepStatus.RUNNING)
    command = [COMMAND, "status", "mine", "--watch", "--interval", "0.1"]
    with sweep_lock(sweep.folder):
        watching = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert watching.stdout is not None
        assert "mine: running" in watching.stdout.readline()
        first.state = TrialState.SUCCEEDED
        sweep.record.add_report(first, {"eval_value": 12.0, "env_step": 30})
        sweep.write(SweepStatus.RUNNING)
        line = watching.stdout.readline()
        assert "mine: running; 3 trials: 1 failed, 2 succeeded; best: trial_00000," in line
        assert line.endswith("eval_value 12 at 30 environment steps\n")
        sweep.write()
    rest, _ = watching.communicate(timeout=20 * PATIENCE)
    assert watching.returncode == 0
    assert "mine: finished" in rest


def test_watching_on_a_terminal_draws_a_live_table(sweep):
    sweep.write(SweepStatus.RUNNING)
    controller, terminal = pty.openpty()
    size = {"TERM": "xterm-256color", "COLUMNS": "120", "LINES": "30"}
    command = [COMMAND, "status", "mine", "--watch", "--interval", "0.1"]
    with sweep_lock(sweep.folder):
        watching = subprocess.Popen(
            command, stdout=terminal, stderr=terminal, env=os.environ | size
        )
        os.close(terminal)
        text = ""
        while text.count("best eval_value") < 3:  # drawn over and over
            text += os.read(controller, 4096).decode(errors="replace")
        sweep.write()
    while True:
        try:
            text += os.read(controller, 4096).decode(errors="replace")
        except OSError:  # the terminal's other end is closed
            break
    assert watching.wait(20 * PATIENCE) == 0
    assert "\x1b[2K" in text
    assert "mine: finished" in text


def test_ctrl_c_ends_watching_without_a_traceback(sweep):
    sweep.write(SweepStatus.RUNNING)
    command = [COMMAND, "status", "mine", "--watch"]
    with sweep_lock(sweep.folder):
        watching = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert watching.stdout is not None
        watching.stdout.readline()
        watching.send_signal(2)
        _, err = watching.communicate(timeout=20 * PATIENCE)
    assert watching.returncode == 130
    assert err == "interrupted\n"


def test_looking_at_a_sweep_needs_no_heavy_package(sweep):
    sweep.write().recorded("embedded")
    code = (
        "import sys; from ditk_ray.cli.main import main\n"
        "main(['status', 'mine']); main(['status']); main(['logs', 'mine', '2'])\n"
        "assert not {'ray', 'mlflow', 'numpy', 'torch', 'plotly'} & set(sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


@pytest.mark.parametrize("lines", [0, 1])
def test_a_reader_that_stops_early_gets_no_traceback(sweep, lines):
    for number in range(3, 400):
        sweep.trial(number)
    sweep.write()
    command = f"{COMMAND} status mine --format json | head -n {lines}"
    run = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert run.stderr == ""
    assert len(run.stdout.splitlines()) == lines


def test_a_sweep_that_ends_while_watched_is_shown_as_it_ended(sweep):
    """The watcher must not take the moment between the record and the lock for a death."""
    sweep.write(SweepStatus.RUNNING)
    with sweep_lock(sweep.folder):
        watching = subprocess.Popen(
            [COMMAND, "status", "mine", "--watch", "--interval", "0.1"],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert watching.stdout is not None
        wait_until(watching.stdout.readline, 20, "the first look")
        sweep.write(SweepStatus.INTERRUPTED)
    rest, _ = watching.communicate(timeout=20 * PATIENCE)
    assert "mine: interrupted" in rest
    assert "dead" not in rest
