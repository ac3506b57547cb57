from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kube.api_server import kube_assets
from tests.processes import PATIENCE

pytestmark = pytest.mark.ray

LONGEST = 280 * PATIENCE
BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"


@pytest.mark.slow
def test_the_efficiency_benchmark_measures_all_contestants(tmp_path):
    command = [sys.executable, "-W", "ignore", str(BENCHMARKS / "sweep_efficiency.py")]
    command += ["--trials", "1", "--rounds", "1", "--steps", "200"]
    shown = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=LONGEST)
    assert shown.returncode == 0, shown.stderr
    *_, last = shown.stdout.splitlines()
    assert re.fullmatch(r"efficiency: \d+\.\d+", last)
    for name in ("limit", "ditk_ray", "limit_quick", "ray_tune", "new_process"):
        assert re.search(rf"^{name} +\d", shown.stdout, re.MULTILINE)
    assert list(tmp_path.iterdir()) == []


def test_the_cost_benchmark_finds_everything_recorded(tmp_path):
    command = [sys.executable, "-W", "ignore", str(BENCHMARKS / "tracking_cost.py")]
    command += ["--trials", "6", "--reports", "5", "--rounds", "1", "--only", "bare"]
    shown = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=LONGEST)
    assert shown.returncode == 0, shown.stderr
    assert re.search(r"^report_cost_ratio: \d+\.\d+", shown.stdout, re.MULTILINE)
    assert shown.stdout.splitlines()[-1] == "complete: yes"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_the_race_to_a_score_compares_the_contestants(tmp_path):
    command = [sys.executable, "-W", "ignore", str(BENCHMARKS / "time_to_target.py")]
    command += ["--seeds", "1", "--steps", "600", "--trials", "1", "--target", "1"]
    command += ["--only", "random", "tpe+asha"]
    shown = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=LONGEST)
    for name in ("random", "tpe+asha"):
        found = re.search(rf"^{re.escape(name)} +0 +(\d+) +\d+ +\d+  reached$", shown.stdout, re.M)
        assert found is not None, shown.stdout + shown.stderr
    assert re.search(r"^tpe\+asha_to_random: \d+\.\d+ \(limit: 0\.333\)$", shown.stdout, re.M)


@pytest.mark.slow
@pytest.mark.kube
def test_the_scale_benchmark_finds_every_evaluation_delivered_once(tmp_path):
    kube_assets()
    command = [sys.executable, "-W", "ignore", str(BENCHMARKS / "dijob_scale.py")]
    # So many that what the sweep asks once, its rights among it, does not count for much.
    command += ["--trials", "8", "--at_once", "4", "--evaluations", "3", "--pause", "0.3"]
    command += ["--output", "figures.json"]
    shown = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=LONGEST)
    assert shown.returncode == 0, shown.stderr
    figures = json.loads((tmp_path / "figures.json").read_text())
    assert figures["exactly_once"] == "yes"
    assert figures["requests_per_trial"] <= 8
    assert figures["contestants"]["poller"]["delivery"]["came"] == 24
    assert re.search(r"^poller_requests_ratio: \d+\.\d+$", shown.stdout, re.MULTILINE)
    assert [path.name for path in tmp_path.iterdir()] == ["figures.json"]
