"""All commands: they are there, explain themselves, and load nothing for it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ditk_ray.cli.main import COMMANDS, main
from tests.record.written_sweep import WrittenSweep

HEAVY = {"ray", "torch", "ding", "mlflow", "pandas", "numpy", "kubernetes", "plotly"}
"""What a command loads only to work; its own module may need rich and pydantic."""


def test_all_commands_are_listed(capsys):
    with pytest.raises(SystemExit):
        main(["--help"])
    listed = capsys.readouterr().out
    assert all(f"    {name}" in listed for name in COMMANDS)


@pytest.mark.parametrize("name", [*COMMANDS])
def test_each_command_explains_itself_by_examples(name, capsys):
    with pytest.raises(SystemExit) as left:
        main([name, "--help"])
    assert left.value.code == 0
    assert f"examples:\n  ditk-ray {name}" in capsys.readouterr().out


def test_explaining_loads_nothing_heavy():
    code = (
        "import contextlib, io, sys\nfrom ditk_ray.cli.main import main\n"
        f"for name in {sorted(COMMANDS)}:\n"
        "    with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()):\n"
        "        main([name, '--help'])\n"
        "print(*{name.partition('.')[0] for name in sys.modules})"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert HEAVY.isdisjoint(run.stdout.split())


@pytest.mark.parametrize("form", ["table", "json"])
def test_a_reader_that_is_gone_before_anything_is_printed_gets_no_traceback(form, tmp_path):
    sweep = WrittenSweep(tmp_path / "mine")
    sweep.trial(0, scores=[(1.0, 1)])
    sweep.write()
    command = [str(Path(sys.executable).with_name("ditk-ray")), "status", str(sweep.folder)]
    reader, writer = os.pipe()
    os.close(reader)
    # As users have it: what is printed is written at the end.
    env = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    command += ["--format", form]
    run = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, env=env)
    os.close(writer)
    assert run.stderr == b""
    assert run.returncode == 141


@pytest.mark.parametrize("name", ["status", "best", "logs", "report", "ui", "tensorboard"])
def test_a_sweep_that_is_not_there_is_refused_without_a_traceback(name, tmp_path, capsys):
    arguments = [name, "mine", *(["0"] if name == "logs" else []), "--storage-path", str(tmp_path)]
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "SWEEP 'mine': there is no such sweep" in err
    assert len(err.splitlines()) == 2
