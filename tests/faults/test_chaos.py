from __future__ import annotations

import pytest

from tests.faults.chaos import run_chaos


@pytest.mark.ray
@pytest.mark.timeout(600)
def test_a_sweep_under_random_faults_loses_nothing_and_does_nothing_twice(tmp_path):
    record, struck = run_chaos(tmp_path, seed=4, faults=4, trials=8)
    assert struck == 4, "the sweep was over before all faults had happened"
    assert any(trial.attempt > 0 for trial in record.trials.values()), "no fault hit a trial"
    assert record.best() is not None
