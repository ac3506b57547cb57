"""Where a sweep is recorded, and how far."""

from __future__ import annotations

import pytest

from ditk_ray.tracking.recording import read_recording
from tests.tracking.written_sweep import WrittenSweep


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
