from __future__ import annotations

import pytest

from ditk_ray.execution.fork_client import SHARED_KEY
from tests.faults.kube_chaos import run_kube_chaos
from tests.processes import PATIENCE


@pytest.mark.kube
@pytest.mark.ray
@pytest.mark.timeout(900 * PATIENCE)
@pytest.mark.parametrize(
    ("seed", "faults", "trials"),
    [
        # An API server that is away, and a killed driver.
        (1920, 2, 4),
        # Compacted history, a deleted job, a crashed operator, an API server that is away, a
        # deleted pod and a killed driver. That comes last: pods go on while there is no driver,
        # and on a slow machine they could all end before another fault.
        pytest.param(135151, 6, 8, marks=pytest.mark.slow),
    ],
)
def test_a_sweep_of_dijobs_under_random_faults_loses_nothing_and_leaves_nothing(
    tmp_path, kube, namespace, warm, ray_address, seed, faults, trials
):
    shared = {"RAY_ADDRESS": ray_address, SHARED_KEY: warm.key}
    _, struck = run_kube_chaos(tmp_path, kube, namespace, seed, faults, trials, shared)
    assert struck == faults
