from __future__ import annotations

from ditk_ray.config.whole_file import write_whole


def test_a_reader_that_has_the_file_open_keeps_the_old_text(tmp_path):
    path = tmp_path / "file"
    write_whole(path, "old " * 1000)

    with path.open() as reader:
        start = reader.read(4)
        write_whole(path, "new " * 1000)
        assert start + reader.read() == "old " * 1000

    assert path.read_text() == "new " * 1000
    assert [item.name for item in tmp_path.iterdir()] == ["file"]
