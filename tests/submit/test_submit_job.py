"""`scripts/submit_job.py`: what it makes of the jobs of Isaac Lab's users."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from ditk_ray.submit.jobs import split_words
from tests.processes import PATIENCE, free_port

SCRIPT = Path(__file__).resolve().parents[2] / "scripts/submit_job.py"


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("submit_job", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("words", "jobs"),
    [
        (["tuner.py", "--cfg_class", "A"], [["python", "scripts/tune.py", "--cfg_class", "A"]]),
        (["tune.py --cfg_class A"], [["python", "scripts/tune.py", "--cfg_class", "A"]]),
        (
            ["tune.py", "--set", "a=*", "*", "python x.py 'a b'", "*", "mine.py"],
            [
                ["python", "scripts/tune.py", "--set", "a=*"],
                ["python", "x.py", "a b"],
                ["python", "mine.py"],
            ],
        ),
    ],
)
def test_a_star_separates_jobs_and_scripts_are_ours(script, words, jobs):
    assert [script.job_of(job) for job in split_words(words, "*")] == jobs


def test_it_sends_what_follows_its_flag_as_it_is(tmp_path):
    address = f"http://127.0.0.1:{free_port()}"
    command = [sys.executable, str(SCRIPT), "--address", address, "--working_dir", str(tmp_path)]
    command += ["--aggregate_jobs", "tune.py", "--no-such-flag", "--address", "x"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60 * PATIENCE)
    assert done.returncode == 2
    assert f"cannot reach cluster {address.removeprefix('http://')}" in done.stderr
