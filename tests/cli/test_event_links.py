"""The folder of links that TensorBoard is shown."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from ditk_ray.cli.browser import link_events


@pytest.fixture
def sweep(tmp_path):
    folder = tmp_path / "sweep"
    folder.mkdir()
    return folder


@pytest.fixture
def place(tmp_path):
    folder = tmp_path / "links"
    folder.mkdir()
    return folder


def events(sweep: Path, trial: int, inside: str) -> Path:
    folder = sweep / f"trial_{trial:05d}" / inside / "exp/log/serial"
    folder.mkdir(parents=True)
    (folder / "events.out.tfevents.1.host").touch()
    return folder


def linked(place: Path) -> dict[str, Path]:
    return {
        str(item.relative_to(place)): item.readlink()
        for item in place.rglob("*")
        if item.is_symlink()
    }


def test_a_trial_is_linked_by_its_name(sweep, place):
    targets = {f"trial_0000{number}": events(sweep, number, "attempt_0") for number in (0, 1)}
    assert link_events(place, sweep) == 2
    assert linked(place) == targets


def test_seeds_are_linked_below_their_trial(sweep, place):
    targets = {f"trial_00000/seed_{s}": events(sweep, 0, f"attempt_0/seed_{s}") for s in (0, 1)}
    link_events(place, sweep)
    assert linked(place) == targets


def test_the_newest_attempt_with_event_files_is_linked(sweep, place):
    old = events(sweep, 0, "attempt_0")
    (sweep / "trial_00000/attempt_1").mkdir()
    link_events(place, sweep)
    assert linked(place) == {"trial_00000": old}
    shutil.rmtree(sweep / "trial_00000/attempt_1")
    new = events(sweep, 0, "attempt_1")
    link_events(place, sweep)
    assert linked(place) == {"trial_00000": new}


def test_all_attempts_are_linked_if_they_are_asked_for(sweep, place):
    targets = {f"trial_00000/attempt_{n}": events(sweep, 0, f"attempt_{n}") for n in (0, 1)}
    link_events(place, sweep, all_attempts=True)
    assert linked(place) == targets


def test_trials_that_appear_later_are_linked_then(sweep, place):
    assert link_events(place, sweep) == 0
    events(sweep, 0, "attempt_0")
    assert link_events(place, sweep) == 1
    events(sweep, 1, "attempt_0")
    assert link_events(place, sweep) == 2
    assert link_events(place, sweep) == 2


def test_a_link_becomes_a_folder_of_links_and_again_a_link(sweep, place):
    first = events(sweep, 0, "attempt_0")
    link_events(place, sweep)
    second = sweep / "trial_00000/attempt_0/exp/extra"
    second.mkdir()
    (second / "events.out.tfevents.2.host").touch()
    link_events(place, sweep)
    assert linked(place) == {"trial_00000/exp/log/serial": first, "trial_00000/exp/extra": second}
    shutil.rmtree(second)
    link_events(place, sweep)
    assert linked(place) == {"trial_00000": first}


def test_a_link_that_is_right_stays_when_another_changes(sweep, place):
    events(sweep, 0, "attempt_0")
    events(sweep, 1, "attempt_0")
    link_events(place, sweep)
    before = (place / "trial_00000").lstat().st_ctime_ns
    events(sweep, 1, "attempt_1")
    link_events(place, sweep)
    assert "attempt_1" in str(linked(place)["trial_00001"])
    assert (place / "trial_00000").lstat().st_ctime_ns == before


def test_what_is_removed_from_the_sweep_is_unlinked(sweep, place):
    events(sweep, 0, "attempt_0")
    link_events(place, sweep)
    shutil.rmtree(sweep / "trial_00000")
    assert link_events(place, sweep) == 0
    assert list(place.iterdir()) == []
