"""What `resume` and `extend` take over from before, and what may be said anew."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from ditk_ray import JobCfg
from ditk_ray.cli.flags import Parser
from ditk_ray.cli.main import main
from ditk_ray.cli.resume import Resume, _as_resumed
from ditk_ray.cli.tune import JobChanges, Tune
from ditk_ray.config.job_spec import check_job
from ditk_ray.config.options import KubeSettings, SweepOptions
from ditk_ray.sweep.resume import SavedJob
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
    parser = Parser()
    Resume.fill(parser)
    given = Resume.read(parser.parse_args(["sweep", *words]))
    assert given.changed(earlier).saved.options.kube == cluster


def test_a_display_that_there_is_not_is_refused_as_any_other_flag(capsys):
    with pytest.raises(SystemExit):
        main(["resume", "sweep", "--progress_reporter", "lively"])
    assert "argument --progress_reporter: invalid choice: 'lively'" in capsys.readouterr().err


@pytest.mark.parametrize(("given", "resumed"), [("plain", "plain"), ("MyReporter", None)])
def test_a_reporter_of_the_users_own_is_the_one_that_was_saved(tmp_path, given, resumed):
    again = Tune(changes=JobChanges(progress_reporter=given))
    assert _as_resumed(again, tmp_path).progress_reporter == resumed
