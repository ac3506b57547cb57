"""A sweep that is killed before its first trial."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

from ditk_ray import JobCfg
from ditk_ray.config.job_spec import check_job
from ditk_ray.config.options import SweepOptions
from ditk_ray.ray_cluster.nodes import this_machine
from ditk_ray.record.record import read_record
from ditk_ray.record.sweep_folder import find_sweep
from ditk_ray.sweep import run
from ditk_ray.sweep.prepare import prepared_sweep
from ditk_ray.sweep.resume import read_earlier
from tests.trial import experiments

pytestmark = pytest.mark.engine


class Begun(JobCfg):
    config = experiments.CARTPOLE
    num_samples = 3


class KilledError(Exception):
    """Stands for the end of the process."""


def killed(*_: Any) -> None:
    raise KilledError


@pytest.mark.parametrize("step", ["_keep_provenance", "Ledger", "_fit"])
def test_it_is_found_and_goes_on_with_its_first_trial(warm, tmp_path, monkeypatch, step):
    monkeypatch.setattr(run, "local_ray", contextlib.nullcontext)
    monkeypatch.setattr(run, "cluster_nodes", lambda: [this_machine()])
    monkeypatch.setattr(run, step, killed)
    options = SweepOptions(storage_path=tmp_path, name="begun")
    with prepared_sweep(check_job(Begun, {}), options, warm) as sweep, pytest.raises(KilledError):
        run.run_sweep(sweep)
    folder = find_sweep("begun", tmp_path)
    assert read_record(folder).started
    earlier = read_earlier(folder)
    assert (earlier.made, earlier.saved.job.num_samples) == (0, 3)
