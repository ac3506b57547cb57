"""Every searcher and scheduler that is offered, in a small real sweep."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, ClassVar

import pytest
from ray import tune

from ditk_ray import JobCfg
from ditk_ray.search.searchers import SEARCHERS
from tests.search.spaces import RATE, distance
from tests.search.synthetic import INTERVAL, STEPS, Climbing
from tests.trial.experiments import CARTPOLE

pytestmark = pytest.mark.ray

ALONE = [
    pytest.param(name, marks=[] if name in ("tpe", "grid") else pytest.mark.slow)
    for name in SEARCHERS
    if name != "bohb"
]


@pytest.mark.parametrize("name", ALONE)
def test_a_searcher_drives_a_sweep(sweep, name):
    class Searched(Climbing):
        searcher = name
        known_points: ClassVar[Any] = [{RATE: 1e-3}] if name != "grid" else []
        searcher_options: ClassVar[Any] = {"points_per_range": 2} if name == "grid" else {}
        num_samples = 1 if name == "grid" else 5

    outcome = sweep(Searched, seed=1)
    trials = list(outcome.record.trials.values())
    assert [trial.state for trial in trials] == ["succeeded"] * len(trials)
    assert len({trial.params[RATE] for trial in trials}) == (2 if name == "grid" else 5)
    assert len(trials) == (4 if name == "grid" else 5)
    if name != "grid":
        assert distance(trials[0].params) == pytest.approx(0, abs=1e-6)
        assert outcome.record.best() is trials[0]
    written = json.loads((outcome.folder / "sweep.json").read_text())
    assert written["job"]["searcher"]["name"] == name


class Halved(Climbing):
    """Good trials come first, so that each bad one is seen to be bad at once."""

    space: ClassVar[Any] = {RATE: tune.grid_search([1e-3, 2e-3, 1e-1, 1e-5, 5e-2, 2e-5])}
    num_samples = 1
    max_concurrent = 1


def last_steps(outcome: Any) -> list[int]:
    return [trial.metrics["env_step"] for trial in outcome.record.trials.values()]


def test_asha_stops_bad_trials_at_the_grace_period(sweep):
    class Asha(Halved):
        scheduler = "asha"
        scheduler_options: ClassVar[Any] = {"grace_period": 3 * INTERVAL}

    outcome = sweep(Asha)
    states = [trial.state for trial in outcome.record.trials.values()]
    assert states[0] == "succeeded"
    assert states[2:] == ["stopped"] * 4
    assert last_steps(outcome) == [576, 192, 192, 192, 192, 192]
    assert outcome.record.job["scheduler"]["name"] == "asha"


def test_the_median_rule_stops_what_stays_below_the_others(sweep):
    class Median(Halved):
        scheduler = "median"
        scheduler_options: ClassVar[Any] = {
            "min_samples_required": 2,
            "grace_period": 3 * INTERVAL,
        }

    outcome = sweep(Median)
    states = [trial.state for trial in outcome.record.trials.values()]
    assert states[:2] == ["succeeded", "succeeded"]
    assert states[2:] == ["stopped"] * 4
    assert max(last_steps(outcome)[2:]) < STEPS / 2


def test_a_wrong_scheduler_option_is_refused_before_anything_is_created(sweep, tmp_path):
    from ditk_ray.errors import BadConfigError

    class Wrong(Halved):
        scheduler = "asha"
        scheduler_options: ClassVar[Any] = {"grace_perod": 3}

    with pytest.raises(BadConfigError, match="did you mean 'grace_period'"):
        sweep(Wrong)
    assert not (tmp_path / "results").exists()


class Trained(JobCfg):
    """CartPole, trained for a moment: long enough to be paused and to go on."""

    config = CARTPOLE
    space: ClassVar[Any] = {
        RATE: tune.loguniform(1e-5, 1e-2),
        "env.stop_value": 10**9,
        "policy.eval.evaluator.eval_freq": 20,
    }
    num_samples = 4
    max_env_step = 600


def attempts(outcome: Any) -> list[int]:
    return [trial.attempt for trial in outcome.record.trials.values()]


def counted_up(outcome: Any) -> bool:
    """Say whether no trial's steps ever fell back, whatever happened to it."""
    for trial in outcome.record.trials.values():
        lines = (Path(trial.dir) / "metrics.jsonl").read_text().splitlines()
        steps = [json.loads(line)["env_step"] for line in lines]
        if steps != sorted(steps):
            return False
    return True


@pytest.mark.parametrize(
    ("searched", "scheduled"),
    [("random", "hyperband"), pytest.param("bohb", "bohb", marks=pytest.mark.slow)],
)
def test_hyperband_pauses_trials_and_goes_on_with_the_good_ones(sweep, searched, scheduled):
    class Banded(Trained):
        searcher = searched
        scheduler = scheduled
        num_samples = 7

    outcome = sweep(Banded, seed=1)
    states = [trial.state for trial in outcome.record.trials.values()]
    assert set(states) == {"succeeded", "stopped"}
    assert max(attempts(outcome)) >= 1, "nothing was paused"
    assert counted_up(outcome)


@pytest.mark.parametrize("name", ["pbt", pytest.param("pb2", marks=pytest.mark.slow)])
def test_a_population_goes_on_from_its_best_within_the_space(sweep, name):
    class Population(Trained):
        scheduler = name
        scheduler_options: ClassVar[Any] = {"quantile_fraction": 0.5}
        num_samples = 2

    outcome = sweep(Population, seed=1)
    changed = [trial for trial in outcome.record.trials.values() if trial.changes]
    assert changed, "nothing was exploited"
    for trial in outcome.record.trials.values():
        assert trial.state == "succeeded"
        assert all(1e-5 <= change["params"][RATE] <= 1e-2 for change in trial.changes)


def test_free_resources_go_to_a_trial_that_runs(sweep):
    class Growing(Trained):
        scheduler = "resource_changing"
        num_samples = 1

    outcome = sweep(Growing)
    (trial,) = outcome.record.trials.values()
    assert trial.state == "succeeded"
    assert trial.attempt >= 1, "it never got the second CPU"
    assert counted_up(outcome)


def test_an_earlier_sweep_is_learned_from_or_its_best_run_again(sweep, tmp_path):
    class Earlier(Climbing):
        known_points: ClassVar[Any] = [{RATE: 1e-3}]

    class Learning(Climbing):
        searcher = "tpe"
        warm_start = "Earlier"
        num_samples = 2

    class Repeating(Learning):
        searcher = "hyperopt"

    earlier = sweep(Earlier, seed=1).record
    learned = sweep(Learning, seed=1).record
    repeated = sweep(Repeating, seed=1).record
    best = earlier.best()
    assert best is not None
    ranks = sorted(distance(trial.params) for trial in earlier.trials.values())
    again = [distance(trial.params) for trial in repeated.trials.values()]
    assert again == pytest.approx(ranks[:2])
    assert best.params not in [trial.params for trial in learned.trials.values()]
    assert learned.job["warm_start"] == "Earlier"
