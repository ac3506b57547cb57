from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from ditk_ray.errors import BadConfigError
from ditk_ray.record.record import TrialState
from ditk_ray.report.data import for_plotly, script_json, show
from ditk_ray.report.page import write_report
from tests.report.simulated import simulate


def test_a_report_is_written_beside_the_sweep_or_where_it_is_wanted(simulation, tmp_path):
    simulation.add([1.0])
    folder = simulation.write()
    assert write_report(folder) == folder / "report.html"
    target = tmp_path / "own.html"
    assert write_report(folder, target) == target
    assert "trial_00000" in target.read_text()
    assert [file.name for file in folder.glob(".*")] == []


def test_a_relative_folder_is_shown_with_a_command_that_works_from_anywhere(
    simulation, monkeypatch
):
    simulation.add([1.0])
    folder = simulation.write()
    (folder / "best_config.py").touch()
    monkeypatch.chdir(folder.parent)
    report = write_report(Path(folder.name)).read_text()
    assert f"python {folder}/best_config.py" in report


def test_without_a_best_config_the_trial_s_own_is_run(simulation):
    trial = simulation.add([1.0])
    (Path(trial.dir) / "config.py").touch()
    assert f"python {trial.dir}/config.py" in write_report(simulation.write()).read_text()


def test_a_folder_that_is_no_sweep_is_refused(tmp_path):
    with pytest.raises(BadConfigError, match=r"sweep\.json"):
        write_report(tmp_path)


def test_a_file_that_cannot_be_written_is_refused(simulation, tmp_path):
    with pytest.raises(BadConfigError, match="cannot be written"):
        write_report(simulation.write(), tmp_path / "missing" / "report.html")


def test_a_sweep_that_was_moved_is_read_where_it_is(tmp_path):
    folder = simulate(tmp_path / "before", 3, 5).write()
    moved = Path(shutil.move(folder, tmp_path / "after"))
    assert "The eval_value of" in write_report(moved).read_text()


def test_a_record_that_tells_little_is_enough(simulation):
    simulation.record.job = {}
    simulation.add([1.0], {"a": 1}, started=None, ended=None)
    simulation.add([], {"a": 2}, TrialState.PENDING, started=None, ended=None)
    assert "trial_00001" in write_report(simulation.write()).read_text()


def test_the_page_names_its_only_scripts_and_lets_nothing_else_in(report):
    text = report.read_text()
    policy = text.partition('http-equiv="Content-Security-Policy" content="')[2].partition('"')[0]
    assert "default-src &#39;none&#39;" in policy or "default-src 'none'" in policy
    assert policy.count("sha256-") == 2
    assert "unsafe-inline" not in policy.partition("style-src")[0]
    assert text.count("plotly.js v") == 1


def test_provenance_is_shown_if_it_was_written_down(simulation):
    simulation.add([1.0])
    folder = simulation.write()
    (folder / "provenance").mkdir()
    facts = {
        "version": 1,
        "command": ["ditk-ray", "tune", "--name", "a b"],
        "working_directory": None,
        "python": {"version": "3.11.7", "executable": "/usr/bin/python"},
        "ray": "2.60.0",
        "packages": {},
        "gpus": [],
        "host": {"name": "one", "cpus": 4, "memory": 2**33, "platform": "Linux"},
        "repositories": [
            {"labels": ["job"], "commit": "0123456789abcdef", "branch": "main", "is_dirty": True,
             "diff": "job.diff"}
        ],
    }  # fmt: skip
    (folder / "provenance" / "provenance.json").write_text(json.dumps(facts))
    text = write_report(folder).read_text()
    assert "0123456789ab on main, with changes (provenance/job.diff)" in text
    assert "ditk-ray tune --name &#39;a b&#39;" in text
    assert "one, 4 CPUs, 8 GiB, Linux" in text
    (folder / "provenance" / "provenance.json").write_text(json.dumps(facts | {"host": None}))
    assert "<dt>host</dt>" not in write_report(folder).read_text()
    (folder / "provenance" / "provenance.json").write_text('["of another kind"]')
    assert "Provenance" not in write_report(folder).read_text()


def test_a_report_replaces_the_last_one_in_one_step(simulation):
    simulation.add([1.0])
    folder = simulation.write()
    first = write_report(folder)
    before = first.stat().st_ino
    write_report(folder)
    assert first.stat().st_ino != before


def test_texts_cannot_leave_their_place():
    assert "</script" not in script_json({"a": "</script><!--"})
    assert json.loads(script_json({"a": "</script>&"})) == {"a": "</script>&"}
    assert for_plotly("<b>&") == "&lt;b&gt;&amp;"


@pytest.mark.parametrize(
    ("value", "text"),
    [(200.0, "200"), (0.00123456, "0.001235"), (123456.78, "123457"), (True, "True"), ([1], "[1]")],
)
def test_values_are_shown_shortly(value, text):
    assert show(value) == text
