from __future__ import annotations

import pytest

from tests.faults.chaos import run_chaos


@pytest.mark.ray
@pytest.mark.timeout(600)
def test_a_sweep_under_random_faults_loses_nothing_and_does_nothing_twice(tmp_path):
    record, _ = run_chaos(tmp_path, seed=4, faults=4, trials=5)
    assert record.best() is not None
