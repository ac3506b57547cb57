from __future__ import annotations

import pytest

from tests.faults.kube_chaos import run_kube_chaos


@pytest.mark.kube
@pytest.mark.ray
@pytest.mark.timeout(900)
def test_a_sweep_of_dijobs_under_random_faults_loses_nothing_and_leaves_nothing(
    tmp_path, kube, namespace
):
    # Compacted history, a deleted job, a crashed operator, an API server that is away, a deleted
    # pod and a killed driver. That comes last: pods go on while there is no driver, and on a
    # slow machine they could all end before another fault.
    _, struck = run_kube_chaos(tmp_path, kube, namespace, seed=135151, faults=6, trials=8)
    assert struck == 6
