"""Waiting for a checkpoint before a pause."""

from __future__ import annotations

from pathlib import Path

import pytest

from ditk_ray.sweep.last_saves import PATIENCE, LastSaves
from ditk_ray.trial.files import SAVE_FILE
from ditk_ray.trial.report_keys import SAVED


@pytest.fixture
def wish(tmp_path: Path) -> Path:
    (tmp_path / "trial").mkdir()
    return tmp_path / "trial" / SAVE_FILE


def test_a_pause_waits_for_an_evaluation_that_is_saved(tmp_path, wish):
    saves = LastSaves(tmp_path, True)
    assert saves.must_wait("trial", {})
    assert wish.exists()
    assert saves.must_wait("trial", {})
    assert not saves.must_wait("trial", {SAVED: True})
    assert not wish.exists()


def test_it_does_not_wait_for_ever(tmp_path, wish):
    saves = LastSaves(tmp_path, True)
    assert [saves.must_wait("trial", {}) for _ in range(PATIENCE + 1)] == [True] * PATIENCE + [
        False
    ]
    assert not wish.exists()


def test_it_does_not_wait_at_all_where_nothing_is_saved(tmp_path, wish):
    assert not LastSaves(tmp_path, False).must_wait("trial", {})
    assert not wish.exists()


def test_a_trial_that_need_not_give_way_any_more_saves_as_before(tmp_path, wish):
    saves = LastSaves(tmp_path, True)
    saves.must_wait("trial", {})
    saves.forget("trial")
    assert not wish.exists()
