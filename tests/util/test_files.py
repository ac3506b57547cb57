from __future__ import annotations

import os
import stat
from concurrent.futures import ThreadPoolExecutor

import pytest

from ditk_ray.util.files import write_private, write_whole


def test_a_reader_that_has_the_file_open_keeps_the_old_text(tmp_path):
    path = tmp_path / "file"
    write_whole(path, "old " * 1000)

    with path.open() as reader:
        start = reader.read(4)
        write_whole(path, "new " * 1000)
        assert start + reader.read() == "old " * 1000

    assert path.read_text() == "new " * 1000
    assert [item.name for item in tmp_path.iterdir()] == ["file"]


def test_what_is_private_is_so_from_its_first_byte(tmp_path):
    path = tmp_path / "file"
    write_whole(path, "for all")
    (tmp_path / ".file.new").write_text("left by somebody who was killed")
    (tmp_path / ".file.new").chmod(0o666)

    write_private(path, "for me")

    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert path.read_text() == "for me"


def test_what_is_for_all_is_as_the_umask_wants_it(tmp_path):
    before = os.umask(0o027)
    try:
        write_whole(tmp_path / "file", "for the group")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o640


def test_of_several_writers_at_once_one_is_read_whole(tmp_path):
    path = tmp_path / "file"
    texts = {f"{number}" * 100_000 for number in range(8)}
    write_whole(path, min(texts))
    with ThreadPoolExecutor(8) as pool:
        writing = [pool.submit(write_whole, path, text) for text in texts for _ in range(5)]
        while not all(each.done() for each in writing):
            assert path.read_text() in texts
        for each in writing:
            each.result()
    assert path.read_text() in texts
    assert [item.name for item in tmp_path.iterdir()] == ["file"]


def test_a_file_that_cannot_be_written_stays_as_it_was_and_nothing_is_left(tmp_path, monkeypatch):
    path = tmp_path / "file"
    write_whole(path, "old")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_whole(path, "new")
    assert path.read_text() == "old"
    assert [item.name for item in tmp_path.iterdir()] == ["file"]
