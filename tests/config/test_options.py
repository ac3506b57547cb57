"""Where sweeps are kept unless a folder is given."""

from __future__ import annotations

from pathlib import Path

from ditk_ray.config.options import default_storage


def test_it_is_in_the_working_directory_but_for_jobs_whose_directory_is_temporary(
    monkeypatch, tmp_path
):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_storage() == Path("ditk_ray_results")
    monkeypatch.setenv("RAY_JOB_CONFIG_JSON_ENV_VAR", "{}")
    assert default_storage() == tmp_path / "ditk_ray_results"
    monkeypatch.setenv("DITK_RAY_STORAGE", "~/shared")
    assert default_storage() == tmp_path / "shared"
