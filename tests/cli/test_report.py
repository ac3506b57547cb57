"""`ditk-ray report`: where the report is written."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from ditk_ray.cli.main import main
from tests.processes import PATIENCE
from tests.record.written_sweep import WrittenSweep


@pytest.fixture
def sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> WrittenSweep:
    monkeypatch.chdir(tmp_path)
    made = WrittenSweep(tmp_path / "ditk_ray_results/mine")
    made.trial(0, scores=[(5.0, 10), (6.0, 20)], **{"policy.lr": 0.1})
    return made.write()


def test_the_report_is_written_into_the_sweeps_folder(sweep, capsys):
    assert main(["report", "mine"]) == 0
    assert capsys.readouterr().out == "ditk_ray_results/mine/report.html\n"
    assert "trial_00000" in (sweep.folder / "report.html").read_text()


def test_the_report_is_written_where_it_is_asked_for(sweep, capsys):
    assert main(["report", "mine", "--output", "mine.html"]) == 0
    assert capsys.readouterr().out == "mine.html\n"
    assert Path("mine.html").is_file()
    assert not (sweep.folder / "report.html").exists()


@pytest.mark.parametrize(
    ("output", "said"),
    [
        ("none/x.html", "its folder does not exist"),
        (".", "is not a file"),
        ("pipe", "is not a file"),
    ],
)
def test_a_place_that_cannot_be_written_is_refused(sweep, capsys, output, said):
    os.mkfifo("pipe")
    assert main(["report", "mine", "--output", output]) == 2
    assert stat.S_ISFIFO(Path("pipe").stat().st_mode)
    assert said in capsys.readouterr().err


def test_it_is_opened_in_the_browser_if_asked(sweep, tmp_path, driver, monkeypatch):
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > {tmp_path}/opened\n')
    browser.chmod(0o755)
    monkeypatch.setenv("BROWSER", f"{browser} %s")
    assert driver("report", "mine", "--open").wait(60 * PATIENCE) == 0
    opened = (tmp_path / "opened").read_text().strip()
    assert opened == (sweep.folder / "report.html").as_uri()
