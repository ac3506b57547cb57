from __future__ import annotations

from pathlib import Path

import pytest

from ditk_ray.errors import BadConfigError
from ditk_ray.tracking.store import (
    artifact_location,
    chosen_uri,
    embedded_uri,
    resolved_uri,
    sqlite_file,
)


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
