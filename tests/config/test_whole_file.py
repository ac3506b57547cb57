from __future__ import annotations

import stat

from ditk_ray.config.whole_file import write_private, write_whole


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
