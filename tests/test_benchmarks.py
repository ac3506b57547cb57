from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.ray

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"


def test_the_efficiency_benchmark_measures_all_contestants(tmp_path):
    command = [sys.executable, "-W", "ignore", str(BENCHMARKS / "sweep_efficiency.py")]
    command += ["--trials", "2", "--rounds", "1", "--steps", "600"]
    shown = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=280)
    assert shown.returncode == 0, shown.stderr
    *_, last = shown.stdout.splitlines()
    assert re.fullmatch(r"efficiency: \d+\.\d+", last)
    for name in ("limit", "ditk_ray", "limit_quick", "ray_tune", "new_process"):
        assert re.search(rf"^{name} +\d", shown.stdout, re.MULTILINE)
    assert list(tmp_path.iterdir()) == []


def test_the_cost_benchmark_finds_everything_recorded(tmp_path):
    command = [sys.executable, "-W", "ignore", str(BENCHMARKS / "tracking_cost.py")]
    command += ["--trials", "10", "--reports", "5", "--rounds", "1", "--only", "bare"]
    shown = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=280)
    assert shown.returncode == 0, shown.stderr
    assert re.search(r"^report_cost_ratio: \d+\.\d+", shown.stdout, re.MULTILINE)
    assert shown.stdout.splitlines()[-1] == "complete: yes"
    assert list(tmp_path.iterdir()) == []
