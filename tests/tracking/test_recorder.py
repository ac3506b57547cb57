"""From a sweep's events to MLflow: a real recorder, its real process, a real server."""

from __future__ import annotations

import json
import math
import subprocess
import sys

import psutil
import pytest
from mlflow import MlflowClient

from ditk_ray.cli.main import main
from ditk_ray.record.journal import journal_path
from ditk_ray.record.record import SweepStatus, TrialState
from ditk_ray.tracking.delivery_process import sync
from ditk_ray.tracking.recording import embedded_uri, read_recording, read_state
from tests.mlflow_server import RecordedRuns
from tests.processes import PATIENCE, free_port, wait_until
from tests.tracking.played_sweep import PlayedSweep

pytestmark = pytest.mark.mlflow


@pytest.fixture(scope="module")
def storage(tmp_path_factory):
    """A folder of results, with the embedded store that all these sweeps share."""
    return tmp_path_factory.mktemp("results")


@pytest.fixture
def played(storage, request):
    """Return a sweep named after the test."""

    def play(uri="embedded", name="", **options):
        return PlayedSweep(storage / f"{request.node.name}{name}", uri, **options)

    return play


def embedded(sweep):
    """Return what the embedded store holds of a sweep."""
    return RecordedRuns(MlflowClient(embedded_uri(sweep.folder.parent)), sweep.folder.name)


def processes_of(folder):
    found = psutil.process_iter(["cmdline"])
    return [p for p in found if str(folder) in (p.info["cmdline"] or [])]


def test_a_trial_is_a_child_run_with_its_parameters_metrics_tags_and_files(played, tmp_path):
    sweep = played().start()
    trial = sweep.trial(0, **{"policy.lr": 0.1, "policy.sizes": [64, 64]})
    for number in range(5):
        sweep.report(trial, number * 10.0, number * 100, eval_value_std=math.nan, done=True)
    (sweep.folder / "trial_00000/result.pkl").write_bytes(b"\x80\x04K\x01.")
    (sweep.folder / "trial_00000/result.json").write_text("1")
    sweep.set_state(trial, TrialState.SUCCEEDED)
    sweep.end()

    runs = embedded(sweep)
    child = runs.children["trial_00000"]
    assert child.info.status == "FINISHED"
    assert child.data.params == {"policy.lr": "0.1", "policy.sizes": "[64, 64]"}
    assert runs.history("trial_00000", "eval_value") == [(100 * n, 10.0 * n) for n in range(5)]
    assert len(runs.history("trial_00000", "eval_value_std")) == 5
    assert "training_iteration" not in child.data.metrics
    tags = {name.partition(".")[2]: value for name, value in child.data.tags.items()}
    assert tags["state"] == "succeeded"
    assert tags["seed"] == "0"
    assert tags["backend"] == "serial"
    assert tags["attempt"] == "0"
    assert tags["node"] == "node-1"
    kept = runs.artifacts(child, tmp_path / "child")
    for name in ("config.py", "metrics.jsonl", "result.pkl", "result.json", "attempt_0/log.txt"):
        assert kept[name] == (sweep.folder / "trial_00000" / name).read_bytes()
    assert kept["checkpoint/ckpt_best.pth.tar"] == b"weights of trial_00000"
    assert processes_of(sweep.folder) == []
    assert sweep.complaints == []


def test_the_sweep_is_the_parent_run_with_the_job_the_best_and_the_counts(played, tmp_path):
    sweep = played().start_alone()
    for number, value in enumerate([5.0, 9.0, 1.0]):
        trial = sweep.trial(number, **{"policy.lr": number / 10})
        sweep.report(trial, value, 100)
        sweep.set_state(trial, TrialState.SUCCEEDED if number else TrialState.STOPPED)
    (sweep.folder / "best_config.py").write_text("best = 1\n")
    (sweep.folder / "report.html").write_text("<p>report</p>")
    (sweep.folder / "provenance").mkdir()
    (sweep.folder / "provenance/provenance.json").write_text("{}")
    sweep.end()

    runs = embedded(sweep)
    parent = runs.parent
    assert parent.info.run_name == sweep.folder.name
    assert parent.info.status == "FINISHED"
    assert parent.data.params["entry"] == "serial"
    assert parent.data.params["searcher.settings.seed"] == "3"
    assert parent.data.params["space.policy.lr"] == "float, uniform, 0 to 1"
    assert parent.data.metrics["best_eval_value"] == 9
    assert parent.data.tags["ditk_ray.best_trial"] == "trial_00001"
    assert parent.data.tags["ditk_ray.best.policy.lr"] == "0.1"
    note = parent.data.tags["mlflow.note.content"]
    assert note.startswith("Best: trial_00001, eval_value 9. Trials: 1 stopped, 2 succeeded.")
    assert parent.data.metrics["trials_succeeded"] == 2
    assert parent.data.metrics["trials_stopped"] == 1
    assert parent.data.metrics["trials_running"] == 0
    kept = runs.artifacts(parent, tmp_path / "parent")
    for name in ("sweep.json", "best_config.py", "report.html", "provenance/provenance.json"):
        assert kept[name] == (sweep.folder / name).read_bytes()
    assert b"policy.lr" in kept["job.json"]
    states = {name: run.data.tags["ditk_ray.state"] for name, run in runs.children.items()}
    assert states == {
        "trial_00000": "stopped",
        "trial_00001": "succeeded",
        "trial_00002": "succeeded",
    }


@pytest.mark.parametrize(
    ("choice", "kept"),
    [("none", []), ("best", ["trial_00001"]), ("all", ["trial_00000", "trial_00001"])],
)
def test_the_best_trials_checkpoint_is_kept_or_all_or_none(played, choice, kept):
    sweep = played(checkpoints=choice).start_alone()
    for number in range(2):
        trial = sweep.trial(number)
        sweep.report(trial, number, 100)
        sweep.set_state(trial, TrialState.SUCCEEDED)
    sweep.end()

    runs = embedded(sweep)
    found = [
        name
        for name, run in sorted(runs.children.items())
        if runs.client.list_artifacts(run.info.run_id, "checkpoint")
    ]
    assert found == kept


def test_a_failed_trial_is_failed_with_its_error_and_a_retried_one_keeps_its_run(played, tmp_path):
    sweep = played().start_alone()
    broken = sweep.trial(0)
    sweep.set_state(broken, TrialState.FAILED, "ValueError: no such luck")
    retried = sweep.trial(1)
    sweep.report(retried, 1, 100)
    sweep.set_state(retried, TrialState.PENDING)
    retried.attempt = 1
    sweep.trial(1)
    sweep.report(retried, 2, 200)
    sweep.set_state(retried, TrialState.SUCCEEDED)
    sweep.end()

    runs = embedded(sweep)
    assert runs.children["trial_00000"].info.status == "FAILED"
    error = runs.children["trial_00000"].data.tags["ditk_ray.error"]
    assert error == "ValueError: no such luck"
    assert runs.children["trial_00001"].info.status == "FINISHED"
    assert runs.children["trial_00001"].data.tags["ditk_ray.attempt"] == "1"
    assert runs.history("trial_00001", "eval_value") == [(100, 1), (200, 2)]


def test_parameters_that_change_on_the_way_break_nothing(played, tmp_path):
    """Population-based training does that; MLflow does not let parameters change."""
    sweep = played().start_alone()
    trial = sweep.trial(0, **{"policy.lr": 0.1, "policy.kind": "a"})
    for step, lr in ((100, 0.2), (200, 0.4)):
        sweep.report(trial, 1, step)
        sweep.set_state(trial, TrialState.PAUSED)
        trial.set_params({"policy.lr": lr, "policy.kind": "b"})
        sweep.set_state(trial, TrialState.RUNNING)
    sweep.set_state(trial, TrialState.SUCCEEDED)
    sweep.end()

    runs = embedded(sweep)
    child = runs.children["trial_00000"]
    assert child.info.status == "FINISHED"
    assert read_state(sweep.folder, "embedded").refused == 0
    assert child.data.params["policy.lr"] == "0.1"
    assert runs.history("trial_00000", "param.policy.lr") == [(0, 0.1), (100, 0.2), (200, 0.4)]
    assert child.data.tags["ditk_ray.param.policy.lr"] == "0.4"
    assert child.data.tags["ditk_ray.param.policy.kind"] == "b"
    history = runs.artifacts(child, tmp_path / "child")["params_history.json"]
    assert history.count(b"env_step") == 3


def test_a_value_too_long_for_mlflow_is_cut_there_and_whole_in_a_file(played, tmp_path):
    sweep = played().start_alone()
    long = list(range(5000))
    sweep.set_state(sweep.trial(0, **{"policy.x": long, "weird [key]+é": 1}), TrialState.SUCCEEDED)
    sweep.end()

    runs = embedded(sweep)
    child = runs.children["trial_00000"]
    assert child.data.params["policy.x"].endswith("...")
    assert child.data.params["weird _key__é_0cb6"] == "1"
    import json

    kept = json.loads(runs.artifacts(child, tmp_path / "child")["params.json"])
    assert kept["policy.x"] == long


def test_the_last_report_which_repeats_an_evaluation_is_not_another_point(played, tmp_path):
    sweep = played().start_alone()
    trial = sweep.trial(0)
    sweep.report(trial, 7, 100)
    sweep.report(trial, 7, 100, returned=3)
    sweep.set_state(trial, TrialState.SUCCEEDED)
    sweep.end()

    runs = embedded(sweep)
    assert runs.history("trial_00000", "eval_value") == [(100, 7)]
    assert runs.history("trial_00000", "returned") == [(100, 3)]


def test_a_log_that_grows_after_its_trial_was_stopped_is_kept_whole(played, tmp_path):
    sweep = played().start()
    trial = sweep.trial(0)
    sweep.report(trial, 7, 100)
    sweep.set_state(trial, TrialState.STOPPED)
    wait_until(lambda: read_state(sweep.folder, "embedded").offset, 60, "a delivery")
    log = sweep.folder / "trial_00000/attempt_0/log.txt"
    log.write_text(log.read_text() + "Terminated\n")
    sweep.end()

    runs = embedded(sweep)
    kept = runs.artifacts(runs.children["trial_00000"], tmp_path / "child")
    assert kept["attempt_0/log.txt"] == log.read_bytes()


def test_an_interrupted_sweep_is_killed_and_when_resumed_goes_on_in_the_same_runs(played, tmp_path):
    first = played().start_alone()
    done, cut = first.trial(0), first.trial(1)
    first.report(done, 1, 100)
    first.set_state(done, TrialState.SUCCEEDED)
    first.report(cut, 1, 100)
    first.set_state(cut, TrialState.PAUSED)
    first.end(SweepStatus.INTERRUPTED)
    runs = embedded(first)
    assert runs.parent.info.status == "KILLED"
    assert runs.children["trial_00000"].info.status == "FINISHED"
    assert runs.children["trial_00001"].info.status == "KILLED"
    ids = {runs.parent.info.run_id} | {run.info.run_id for run in runs.children.values()}

    second = played()
    second.record.trials = first.record.trials
    second.start_alone()
    again = second.trial(1)
    second.report(again, 2, 200)
    second.set_state(again, TrialState.SUCCEEDED)
    second.end()

    runs = embedded(second)
    assert {runs.parent.info.run_id} | {run.info.run_id for run in runs.children.values()} == ids
    assert runs.parent.info.status == "FINISHED"
    assert runs.children["trial_00001"].info.status == "FINISHED"
    assert runs.history("trial_00001", "eval_value") == [(100, 1), (200, 2)]


PLAY_AND_DIE = """
import os, signal, sys
from pathlib import Path
from ditk_ray.record.record import TrialState
from tests.tracking.played_sweep import PlayedSweep
sweep = PlayedSweep(Path(sys.argv[1]), "embedded").start()
done = sweep.trial(0)
sweep.report(done, 1, 100)
sweep.set_state(done, TrialState.SUCCEEDED)
cut = sweep.trial(1)
for number in range(20):
    sweep.report(cut, number, number)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_sweep_whose_process_is_killed_is_recorded_to_its_last_event_and_ended(storage):
    folder = storage / "killed"
    subprocess.run([sys.executable, "-c", PLAY_AND_DIE, str(folder)])
    wait_until(lambda: not processes_of(folder), 90, "the delivery to end by itself")

    runs = RecordedRuns(MlflowClient(embedded_uri(storage)), "killed")
    assert runs.parent.info.status == "KILLED"
    assert runs.parent.data.tags["ditk_ray.state"] == "interrupted"
    assert runs.children["trial_00000"].info.status == "FINISHED"
    assert runs.children["trial_00001"].info.status == "KILLED"
    assert len(runs.history("trial_00001", "eval_value")) == 20


def test_with_the_server_away_everything_waits_on_disk_and_sync_delivers_it(
    played, mlflow_server, monkeypatch
):
    monkeypatch.setattr("ditk_ray.tracking.recorder.AWAY_SECONDS", 1.0)
    mlflow_server.kill()
    sweep = played(mlflow_server.uri).start()
    trial = sweep.trial(0)
    for number in range(30):
        sweep.report(trial, number, number)
    sweep.set_state(trial, TrialState.SUCCEEDED)
    wait_until(lambda: read_state(sweep.folder, mlflow_server.uri).error, 60, "a failure")
    sweep.refresh()
    assert "kept on disk" in sweep.complaints[0]
    sweep.end()
    assert f"ditk-ray sync {sweep.folder}`" in sweep.complaints[-1]
    assert processes_of(sweep.folder) == []

    mlflow_server.start()
    for _ in range(2):  # the second time there is nothing to do
        state = sync(sweep.folder)
        assert state.offset == journal_path(sweep.folder).stat().st_size
    runs = RecordedRuns(mlflow_server.client(), sweep.folder.name)
    assert runs.parent.info.status == "FINISHED"
    assert len(runs.history("trial_00000", "eval_value")) == 30


def test_a_server_killed_in_the_middle_and_started_again_misses_and_doubles_nothing(
    played, mlflow_server
):
    sweep = played(mlflow_server.uri).start()
    trials = [sweep.trial(number) for number in range(3)]

    def play(steps):
        for step in steps:
            for trial in trials:
                sweep.report(trial, step, step)

    play(range(50))
    wait_until(lambda: read_state(sweep.folder, mlflow_server.uri).offset, 60, "a delivery")
    mlflow_server.kill()
    play(range(50, 100))
    wait_until(lambda: read_state(sweep.folder, mlflow_server.uri).error, 60, "a failure")
    mlflow_server.start()
    play(range(100, 150))
    for trial in trials:
        sweep.set_state(trial, TrialState.SUCCEEDED)
    sweep.end()

    runs = RecordedRuns(mlflow_server.client(), sweep.folder.name)
    assert len(runs.children) == 3
    for name, run in runs.children.items():
        assert run.info.status == "FINISHED"
        assert runs.history(name, "eval_value") == [(step, step) for step in range(150)]


def test_a_delivery_that_is_killed_in_the_middle_is_taken_up_without_loss_or_doubling(
    played, mlflow_server
):
    sweep = played(mlflow_server.uri)
    trials = [sweep.trial(number) for number in range(50)]
    for step in range(20):
        for trial in trials:
            sweep.report(trial, step, step)
    for trial in trials:
        sweep.set_state(trial, TrialState.SUCCEEDED)
    sweep.start()
    client = mlflow_server.client()

    def runs_made():
        found = client.get_experiment_by_name(sweep.folder.name)
        return found and len(client.search_runs([found.experiment_id]))

    made = wait_until(runs_made, 60, "some runs to be made")
    sweep.recorder._process.kill()
    assert 0 < made < 51
    sweep.end()
    assert "sends the rest" in sweep.complaints[-1]

    sync(sweep.folder)
    runs = RecordedRuns(client, sweep.folder.name)
    assert len(runs.children) == 50
    for name, run in runs.children.items():
        assert run.info.status == "FINISHED"
        assert runs.history(name, "eval_value") == [(step, step) for step in range(20)]


def test_a_run_that_was_deleted_by_hand_does_not_hold_up_the_others(played, mlflow_server):
    sweep = played(mlflow_server.uri).start()
    trials = [sweep.trial(number) for number in range(2)]
    state = wait_until(
        lambda: len((s := read_state(sweep.folder, mlflow_server.uri)).runs) == 3 and s,
        60,
        "the runs",
    )
    mlflow_server.client().delete_run(state.runs["trial_00000"])
    for trial in trials:
        sweep.report(trial, 1, 1)
        sweep.set_state(trial, TrialState.SUCCEEDED)
    sweep.end()

    runs = RecordedRuns(mlflow_server.client(), sweep.folder.name)
    assert list(runs.children) == ["trial_00001"]
    assert runs.children["trial_00001"].info.status == "FINISHED"
    assert "refused" in sweep.complaints[-1]


def test_a_finished_sweep_can_be_recorded_in_another_store_as_well(played, tmp_path, mlflow_server):
    sweep = played().start_alone()
    trial = sweep.trial(0)
    sweep.report(trial, 1, 100)
    sweep.set_state(trial, TrialState.SUCCEEDED)
    sweep.end()

    sync(sweep.folder, mlflow_server.uri)

    here, there = embedded(sweep), RecordedRuns(mlflow_server.client(), sweep.folder.name)
    assert there.history("trial_00000", "eval_value") == here.history("trial_00000", "eval_value")
    kept = there.artifacts(there.children["trial_00000"], tmp_path / "there")
    assert kept == here.artifacts(here.children["trial_00000"], tmp_path / "here")


def test_a_store_that_was_removed_gets_everything_again(tmp_path):
    sweep = PlayedSweep(tmp_path / "results/played", "embedded").start_alone()
    trial = sweep.trial(0)
    sweep.report(trial, 1, 100)
    sweep.set_state(trial, TrialState.SUCCEEDED)
    sweep.end()
    for database in (tmp_path / "results").glob("mlflow.db*"):
        database.unlink()

    sync(sweep.folder)

    assert embedded(sweep).history("trial_00000", "eval_value") == [(100, 1)]


def test_files_that_cannot_be_uploaded_hold_up_nothing_and_are_sent_later(tmp_path, capsys):
    in_the_way = tmp_path / "results/mlflow_artifacts"
    in_the_way.parent.mkdir()
    in_the_way.write_text("a file where a folder should be")
    sweep = PlayedSweep(tmp_path / "results/played", "embedded").start()
    trial = sweep.trial(0)
    sweep.report(trial, 1, 100)
    sweep.set_state(trial, TrialState.SUCCEEDED)
    sweep.end()
    assert "files of 2 runs" in sweep.complaints[-1]
    assert embedded(sweep).history("trial_00000", "eval_value") == [(100, 1)]

    assert main(["sync", str(sweep.folder)]) == 1
    said = capsys.readouterr()
    assert said.out.startswith("not all of played is in ")
    assert "files of 2 runs are missing" in said.err

    in_the_way.unlink()
    assert main(["sync", str(sweep.folder), "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["files_missing"] == []
    assert read_recording(sweep.folder).is_complete
    runs = embedded(sweep)
    assert runs.parent.info.status == "FINISHED"
    kept = runs.artifacts(runs.children["trial_00000"], tmp_path / "child")
    assert set(kept) >= {"config.py", "metrics.jsonl", "attempt_0/log.txt"}
    assert "job.json" in runs.artifacts(runs.parent, tmp_path / "parent")


def test_the_same_store_by_another_name_is_not_given_everything_twice(played):
    sweep = played().start_alone()
    trial = sweep.trial(0)
    sweep.report(trial, 1, 100)
    sweep.set_state(trial, TrialState.SUCCEEDED)
    sweep.end()

    sync(sweep.folder, embedded_uri(sweep.folder.parent))

    assert embedded(sweep).history("trial_00000", "eval_value") == [(100, 1)]


def test_one_value_that_no_store_takes_costs_only_itself(played):
    sweep = played().start_alone()
    trial = sweep.trial(0, **{"x[0]": 1, "x(0)": 2, "bad": "\ud800\0"})
    sweep.report(trial, 1, 100, huge=10**400, endless=float("inf"), **{"y[0]": 3, "y(0)": 4})
    sweep.set_state(trial, TrialState.FAILED, "it broke: \udc80")
    sweep.end()

    child = embedded(sweep).children["trial_00000"]
    assert child.info.status == "FAILED"
    assert child.data.metrics["eval_value"] == 1
    assert sorted(child.data.params.values()) == ["0.5", "1", "2", "?"]
    assert sorted(v for k, v in child.data.metrics.items() if k.startswith("y")) == [3, 4]
    assert read_state(sweep.folder, "embedded").refused == 0


def test_a_delivery_that_dies_is_started_again(played, monkeypatch):
    monkeypatch.setattr("ditk_ray.tracking.recorder.RESTART_SECONDS", 0.0)
    sweep = played().start()
    sweep.recorder._process.kill()
    sweep.recorder._process.wait()
    trial = sweep.trial(0)
    sweep.report(trial, 1, 100)
    sweep.refresh()
    sweep.set_state(trial, TrialState.SUCCEEDED)
    sweep.end()

    assert sweep.complaints == []
    assert embedded(sweep).history("trial_00000", "eval_value") == [(100, 1)]


def test_an_address_where_nothing_answers_costs_the_sweep_nothing(played, monkeypatch):
    monkeypatch.setattr("ditk_ray.tracking.recorder.AWAY_SECONDS", 0.5)
    sweep = played(f"http://127.0.0.1:{free_port()}").start()
    import time

    begun = time.monotonic()
    trial = sweep.trial(0)
    for number in range(1000):
        sweep.report(trial, number, number)
    assert time.monotonic() - begun < 1 * PATIENCE
    sweep.end()
    assert processes_of(sweep.folder) == []


def test_two_sweeps_that_start_at_once_share_the_embedded_store(played):
    sweeps = [played(name=name).start() for name in ("one", "two")]
    for sweep in sweeps:
        trial = sweep.trial(0)
        sweep.report(trial, 1, 1)
        sweep.set_state(trial, TrialState.SUCCEEDED)
    for sweep in sweeps:
        sweep.end()
        assert sweep.complaints == []
