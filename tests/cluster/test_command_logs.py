from __future__ import annotations

import pytest

from ditk_ray.cluster.commands.command_logs import CommandLog, log_name, make_log_folder
from ditk_ray.errors import BadConfigError


def test_output_is_kept_whole_and_handed_out_by_lines(tmp_path):
    log = CommandLog(tmp_path / "0.log")
    assert [*log.take(b"a\nhal")] == ["a"]
    assert [*log.take(b"f\r\n\xff")] == ["half"]
    assert [*log.close()] == ["\N{REPLACEMENT CHARACTER}"]
    assert log.path.read_bytes() == b"a\nhalf\r\n\xff"


def test_a_line_without_end_does_not_wait_for_ever(tmp_path):
    log = CommandLog(tmp_path / "0.log")
    assert len([*log.take(b"x" * 100_000)]) == 1
    assert [*log.close()] == []


def test_a_log_is_named_after_its_command():
    assert log_name(3, "3") == "3.log"
    assert log_name(3, "../my job") == "3_.._my_job.log"


def test_a_folder_with_files_in_it_is_not_used(tmp_path):
    assert make_log_folder(tmp_path / "new" / "logs").is_dir()
    (tmp_path / "file").touch()
    with pytest.raises(BadConfigError, match="is not empty"):
        make_log_folder(tmp_path)
    with pytest.raises(BadConfigError, match="--log_dir"):
        make_log_folder(tmp_path / "file")
