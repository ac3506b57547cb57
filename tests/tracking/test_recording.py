"""Where a sweep is recorded, and how far."""

from __future__ import annotations

from pathlib import Path

import pytest

from ditk_ray.errors import BadConfigError
from ditk_ray.tracking.recording import (
    artifact_location,
    chosen_uri,
    embedded_uri,
    read_recording,
    resolved_uri,
    sqlite_file,
)
from tests.record.written_sweep import WrittenSweep


@pytest.fixture
def sweep(tmp_path):
    return WrittenSweep(tmp_path / "mine")


def test_a_sweep_without_a_journal_is_not_recorded(sweep):
    assert read_recording(sweep.folder) is None


def test_a_delivered_journal_is_complete(sweep):
    recording = read_recording(sweep.recorded("http://host:5000").folder)
    assert recording.is_complete
    assert recording.pending == 0
    assert recording.experiment == "mine"


def test_a_part_that_was_not_delivered_is_counted(sweep):
    recording = read_recording(sweep.recorded("http://host:5000", delivered=0.5).folder)
    assert not recording.is_complete
    assert recording.pending > 0


def test_a_journal_without_an_end_is_not_complete_even_if_it_was_delivered(sweep):
    recording = read_recording(sweep.recorded("http://host:5000", has_end=False).folder)
    assert recording.pending == 0
    assert not recording.is_complete


def test_a_delivered_journal_is_not_complete_without_all_files(sweep):
    recording = read_recording(sweep.recorded("embedded", files_missing=["trial_00000"]).folder)
    assert recording.files_missing == 1
    assert not recording.is_complete


def test_the_store_is_the_one_that_the_sweep_was_last_told(sweep):
    sweep.recorded("http://first:5000").recorded("http://second:5000")
    assert read_recording(sweep.folder).uri == "http://second:5000"


def test_the_embedded_store_is_beside_the_sweep_wherever_that_is_now(sweep, tmp_path):
    sweep.recorded("embedded")
    moved = tmp_path / "other/mine"
    moved.parent.mkdir()
    sweep.folder.rename(moved)
    recording = read_recording(moved)
    assert recording.uri == f"sqlite:///{tmp_path}/other/mlflow.db"
    assert not recording.is_on_server


@pytest.mark.parametrize("uri", ["http://host:5000", "https://a:b@host/mlflow", "databricks"])
def test_a_server_shows_its_runs_itself(sweep, uri):
    assert read_recording(sweep.recorded(uri).folder).is_on_server


def test_the_page_is_that_of_the_sweeps_own_run(sweep):
    recording = read_recording(sweep.recorded("http://host:5000/").folder)
    page = "http://host:5000/#/experiments/7/runs/abc123?workflowType=machine_learning"
    assert recording.page("http://host:5000/") == page


@pytest.fixture(autouse=True)
def no_variable(monkeypatch):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)


def test_without_a_word_a_sweep_is_recorded_in_the_store_beside_it(tmp_path):
    assert chosen_uri(None) == "embedded"
    assert resolved_uri("embedded", tmp_path / "sweep") == f"sqlite:///{tmp_path}/mlflow.db"


def test_mlflows_own_variable_is_honoured_and_a_flag_wins(monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://there:5000")

    assert chosen_uri(None) == "http://there:5000"
    assert chosen_uri("http://here:5000") == "http://here:5000"
    assert chosen_uri("none") == "none"


@pytest.mark.parametrize("uri", ["there", "ftp://there", "http://", "./mlruns", "file:///mlruns"])
def test_what_is_no_store_is_refused_with_what_would_be(uri):
    with pytest.raises(BadConfigError, match="sqlite:///FILE"):
        chosen_uri(uri)


def test_a_refusal_does_not_show_a_password():
    with pytest.raises(BadConfigError) as error:
        chosen_uri("postgres://me:hunter2@host/db")

    assert "hunter2" not in str(error.value)


def test_a_file_is_remembered_whole_since_it_is_used_from_other_folders(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    uri = chosen_uri("sqlite:///copy.db")

    assert sqlite_file(uri) == tmp_path / "copy.db"
    assert chosen_uri(uri) == uri


@pytest.mark.parametrize("name", ["/etc/foo", "../../foo", "a/b", "..."])
def test_an_experiments_name_does_not_lead_out_of_the_artifacts_folder(tmp_path, name):
    place = Path(artifact_location(embedded_uri(tmp_path), tmp_path / "sweep", name))

    assert place.parent == tmp_path / "mlflow_artifacts"


def test_a_server_decides_itself_where_artifacts_go(tmp_path):
    assert artifact_location("http://there:5000", tmp_path, "walker") is None
