"""Which token a cluster is shown."""

from __future__ import annotations

import stat

import pytest

from ditk_ray.cluster.jobs.tokens import forget_token, token_of, write_token
from ditk_ray.errors import BadConfigError


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("RAY_AUTH_TOKEN")
    return tmp_path


def test_a_clusters_own_comes_before_the_users(home, monkeypatch):
    assert token_of("lab") is None
    (home / ".ray").mkdir()
    (home / ".ray/auth_token").write_text("of the user\n")
    assert token_of("lab") == "of the user"
    (home / "elsewhere").write_text("of a file")
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", "~/elsewhere")
    assert token_of("lab") == "of a file"
    monkeypatch.setenv("RAY_AUTH_TOKEN", "of the shell")
    assert token_of("lab") == "of the shell"
    file = write_token("lab", "of lab")
    assert token_of("lab") == "of lab"
    assert token_of("other") == "of the shell"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    forget_token("lab")
    assert token_of("lab") == "of the shell"


def test_a_token_that_cannot_be_kept_is_told_with_its_file(home):
    (home / ".ray").touch()
    with pytest.raises(BadConfigError, match=r"\.ray/tokens/lab: the token cannot be kept"):
        write_token("lab", "of lab")
    with pytest.raises(BadConfigError, match=r"\.ray/tokens/lab: the token stays"):
        forget_token("lab")


def test_a_file_that_is_named_but_not_there_is_a_mistake(monkeypatch):
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", "/no/such/file")
    with pytest.raises(BadConfigError, match="RAY_AUTH_TOKEN_PATH"):
        token_of(None)
