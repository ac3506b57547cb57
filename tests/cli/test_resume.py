"""What `resume` and `extend` take over from before, and what may be said anew."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from ditk_ray import JobCfg
from ditk_ray.cli.main import build_parser
from ditk_ray.cli.resume import _changed
from ditk_ray.config.job_spec import check_job
from ditk_ray.kube.connection import KubeSettings
from ditk_ray.sweep.saved_job import SavedJob
from ditk_ray.sweep.setup import SweepOptions
from tests.trial import experiments


class Cartpole(JobCfg):
    config = experiments.CARTPOLE


BEFORE = KubeSettings(Path("/old/config"), "old", "rl")


@dataclass(frozen=True)
class Earlier:
    """What of an earlier sweep matters here."""

    saved: SavedJob


@pytest.fixture
def earlier(tmp_path: Path) -> Any:
    job = check_job(Cartpole, {})
    options = SweepOptions(storage_path=tmp_path, kube=BEFORE)
    return Earlier(SavedJob(job, options, 0))


@pytest.mark.parametrize(
    ("words", "cluster"),
    [
        ([], BEFORE),
        (["--context", "new"], replace(BEFORE, context="new")),
        (["--kubeconfig", "/new"], KubeSettings(Path("/new"), None, "rl")),
        (["--kubeconfig", "/new", "--context", "new"], KubeSettings(Path("/new"), "new", "rl")),
    ],
)
def test_jobs_stay_in_their_namespace_whatever_leads_to_the_cluster(earlier, words, cluster):
    given = build_parser().parse_args(["resume", "sweep", *words])
    assert _changed(earlier, given, {}).saved.options.kube == cluster
