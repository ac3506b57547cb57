"""A sweep as an earlier process left it."""

from __future__ import annotations

import math
import pickle
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from ray import tune
from ray.tune.experiment import Trial
from ray.tune.schedulers import FIFOScheduler, TrialScheduler

from ditk_ray import JobCfg, __version__
from ditk_ray.cli.resume import require_work
from ditk_ray.config.job_spec import check_job
from ditk_ray.config.options import SweepOptions
from ditk_ray.config.resources import TrialResources
from ditk_ray.errors import BadConfigError, NothingLeftError
from ditk_ray.execution.pickled_call import Pickled
from ditk_ray.record.record import SweepRecord, SweepStatus, TrialRecord, TrialState, write_record
from ditk_ray.record.sweep_folder import STATE_FOLDER
from ditk_ray.search.budget import Budget
from ditk_ray.search.schedulers import base_of, build_scheduler
from ditk_ray.search.stoppers import build_stopper
from ditk_ray.sweep.control import TrialQueue
from ditk_ray.sweep.resume import (
    JOB_FILE,
    VERSION_FILE,
    EarlierSweep,
    SavedJob,
    bring_back,
    catch_up,
    numbered_rows,
    read_earlier,
    recall_ended,
    recall_open,
    recall_stopper,
    save_job,
)
from ditk_ray.sweep.stopping import LossPolicy
from ditk_ray.sweep.trials import Ledger, trial_name
from ditk_ray.trial.reports import ATTEMPT, REPORT, Failure, FailureLog, MetricsFile
from tests.search.spaces import only_rate
from tests.trial import experiments

DRAWN = {"policy.sizes": (64, 64), "policy.limit": math.inf, "policy.rate": 0.5}


class Choosing(JobCfg):
    config = experiments.CARTPOLE
    space: ClassVar[Any] = {
        "policy.sizes": tune.choice([(64, 64), (32,)]),
        "policy.limit": tune.choice([1.0, math.inf]),
        "policy.rate": tune.uniform(0, 1),
    }


class Left:
    """The folder of a sweep whose process is gone."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.record = SweepRecord("left", "eval_value", "max")
        save_job(folder, SavedJob(check_job(Choosing, {}), SweepOptions(), 0), ())
        self.ledger = Ledger(folder)

    def trial(self, state: TrialState, **values: Any) -> TrialRecord:
        name = f"trial_{len(self.record.trials):05d}"
        trial = TrialRecord(name, dict(DRAWN), state, dir=str(self.folder / name), **values)
        self.record.trials[name] = trial
        self.ledger.made(name, DRAWN, DRAWN)
        if state.is_final:
            self.ledger.ended(trial)
        write_record(self.record, self.folder)
        return trial


@pytest.fixture
def left(tmp_path: Path) -> Left:
    return Left(tmp_path)


def test_what_json_does_not_know_is_drawn_as_it_was(left):
    left.trial(TrialState.RUNNING)
    earlier = read_earlier(left.folder)
    (again,) = earlier.unfinished.values()
    assert again == DRAWN
    assert earlier.record.trials["trial_00000"].params == DRAWN


def test_what_a_scheduler_has_changed_stays_changed_and_is_one_of_the_choices(left):
    trial = left.trial(TrialState.RUNNING)
    trial.set_params({**DRAWN, "policy.sizes": (32,), "policy.rate": 0.7})
    write_record(left.record, left.folder)
    (again,) = read_earlier(left.folder).unfinished.values()
    assert again == {**DRAWN, "policy.sizes": (32,), "policy.rate": 0.7}


def test_a_trial_that_a_person_has_paused_is_known(left):
    left.trial(TrialState.PAUSED, is_held=True)
    left.trial(TrialState.PAUSED)
    assert read_earlier(left.folder).held == ("trial_00000",)


OLD_CLASS = b"cditk_ray.trial.shipping\nShipped\n."
"""A pickle that names a class where ditk_ray 0.1.0 had it."""

GONE_CLASS = b"cditk_ray.sweep.resume\nEarlierSweepOfOld\n."


@pytest.mark.parametrize(
    "saved",
    [OLD_CLASS, GONE_CLASS, pickle.dumps(Pickled(OLD_CLASS, ()))],
    ids=["module", "class", "inside"],
)
def test_a_sweep_that_an_earlier_version_has_saved_is_refused_with_that_version(left, saved):
    state = left.folder / STATE_FOLDER
    (state / JOB_FILE).write_bytes(saved)
    said = rf"SWEEP {left.folder.name}: was saved by ditk_ray {{}} and .*\n.* with that version"
    with pytest.raises(BadConfigError, match=said.format(__version__)):
        read_earlier(left.folder)
    (state / VERSION_FILE).unlink()
    with pytest.raises(BadConfigError, match=said.format("0.1.0")):
        read_earlier(left.folder)


def test_a_module_of_the_user_that_is_missing_is_named(left):
    (left.folder / STATE_FOLDER / JOB_FILE).write_bytes(b"cmy_modules\nEntry\n.")
    with pytest.raises(BadConfigError, match="No module named 'my_modules'"):
        read_earlier(left.folder)


class Told:
    """Stands for a searcher's sampler."""

    def __init__(self) -> None:
        self.ends: dict[str, Any] = {}
        self.again: list[str] = []

    def recognise(self, trial: str, drawn: Any) -> None: ...

    def ended(self, trial: str, drawn: Any, result: Any) -> None:
        self.ends[trial] = result

    def reopen(self, trial: str) -> None:
        self.again.append(trial)


def test_a_searcher_is_told_no_score_of_what_failed_or_was_cancelled(left):
    scored = {"metrics": {"eval_value": 3.0}, "best_metrics": {"eval_value": 3.0}}
    left.trial(TrialState.SUCCEEDED, **scored)
    left.trial(TrialState.FAILED, **scored)
    left.trial(TrialState.STOPPED, why="cancelled", **scored)
    left.trial(TrialState.STOPPED, **scored)
    left.trial(TrialState.PRUNED, **scored)
    told: Any = Told()
    catch_up(told, read_earlier(left.folder))
    assert [told.ends[f"0000{number}"] is not None for number in range(5)] == [
        *(True, False, False, True, False)
    ]
    assert told.again == []


def test_a_searcher_knows_which_failed_trials_are_run_again_also_after_another_kill(left):
    left.trial(TrialState.FAILED)
    left.trial(TrialState.SUCCEEDED)
    for retry_failed in (True, False):
        told: Any = Told()
        catch_up(told, read_earlier(left.folder, retry_failed))
        assert told.again == ["00000"]
        assert list(told.ends) == ["00001"]


def test_a_stopper_is_shown_again_what_it_was_shown_but_for_what_only_tune_knew(left):
    trial = left.trial(TrialState.RUNNING)
    Path(trial.dir).mkdir()
    for step in (100, 200):
        MetricsFile(Path(trial.dir)).append({"env_step": step, ATTEMPT: 0, REPORT: step // 100})
    seen = []
    stopper = build_stopper(lambda name, result: seen.append((name, result)))
    assert stopper is not None
    recall_stopper(stopper, read_earlier(left.folder))
    assert [name for name, _ in seen] == ["00000"] * 2
    assert [result["training_iteration"] for _, result in seen] == [1, 2]
    assert [result["env_step"] for _, result in seen] == [100, 200]
    assert seen[0][1]["config"] == DRAWN


def rule_of(left: Left, status: SweepStatus) -> str | None:
    left.record.status, left.record.why = status, "sweep.trials>=1"
    write_record(left.record, left.folder)
    return read_earlier(left.folder).ended_by


def test_the_rule_that_has_ended_a_sweep_is_known(left):
    left.trial(TrialState.SUCCEEDED)
    assert rule_of(left, SweepStatus.FINISHED) == "sweep.trials>=1"
    assert rule_of(left, SweepStatus.FAILED) is None


def test_a_sweep_that_its_own_rule_would_end_at_once_is_not_begun_again(left):
    left.trial(TrialState.SUCCEEDED)
    rule_of(left, SweepStatus.FINISHED)
    sweep: Any = SimpleNamespace(
        folder=left.folder, name="left", seconds_left=None, trial_count=100
    )
    earlier = read_earlier(left.folder)
    with pytest.raises(NothingLeftError, match=r"ended by its stopper, sweep\.trials>=1"):
        require_work(sweep, earlier)
    require_work(sweep, replace(earlier, ended_by=None))


RESOURCES = TrialResources(memory=100, max_memory=200)


@pytest.fixture
def earlier(tmp_path) -> EarlierSweep:
    record = SweepRecord("earlier", "eval_value", "max")
    record.trials["trial_00000"] = TrialRecord("trial_00000", {})
    (tmp_path / "trial_00000").mkdir()
    saved: Any = None
    return EarlierSweep(tmp_path, saved, record, {"trial_00000": {}}, {})


def taken(earlier: EarlierSweep, queue: TrialQueue) -> Trial:
    loss_policy = LossPolicy(1, RESOURCES)
    trial = Trial("mock", stub=True, trial_id="00000", trial_name_creator=trial_name)
    bring_back(trial, earlier, FIFOScheduler(), queue, loss_policy, RESOURCES.max_memory)
    return trial


def memory(trial: Trial) -> Any:
    given = trial.placement_group_factory
    return given and given.required_resources.get("memory")


def test_a_trial_that_a_person_has_paused_stays_paused_until_it_is_released(earlier):
    earlier.record.trials["trial_00000"].is_held = True
    queue = TrialQueue()
    assert taken(earlier, queue).status == Trial.PAUSED
    assert "trial_00000" in queue.held
    assert queue.next_waiting({"trial_00000"}) is None
    queue.held.discard("trial_00000")
    assert queue.next_waiting({"trial_00000"}) == "trial_00000"
    assert earlier.held == ("trial_00000",)


def test_another_one_waits_for_its_place(earlier):
    queue = TrialQueue()
    assert taken(earlier, queue).status == Trial.PENDING
    assert queue == TrialQueue()


@pytest.mark.parametrize(("kind", "given"), [("out_of_memory", 200), ("stall", None)])
def test_memory_that_was_granted_is_granted_again(earlier, kind, given):
    FailureLog(earlier.folder / "trial_00000").add(Failure(kind, "it failed", 0))
    assert memory(taken(earlier, TrialQueue())) == given


CONTROLLER = SimpleNamespace(get_live_trials=lambda: (), get_trials=lambda: ())


def written(folder: Path, *scores: float) -> Path:
    """Write a trial that was evaluated every hundred steps."""
    folder.mkdir()
    file = MetricsFile(folder)
    for number, score in enumerate(scores, start=1):
        steps = {"env_step": 100 * number, "eval_value": score}
        file.append({**steps, ATTEMPT: 0, REPORT: number})
    return folder


def sweep_of(tmp_path: Path, *trials: tuple[float, ...]) -> SweepRecord:
    record = SweepRecord("earlier", "eval_value", "max")
    for number, scores in enumerate(trials):
        name = f"trial_{number:05d}"
        folder = written(tmp_path / name, *scores)
        record.trials[name] = TrialRecord(name, {}, TrialState.SUCCEEDED, dir=str(folder))
    return record


def scheduler(name: str, **options: Any) -> TrialScheduler:
    made = build_scheduler(name, options, Budget(1000, "env_step", 100.0), only_rate())
    made.set_search_properties("eval_value", "max")
    return made


def judged(made: TrialScheduler, trial: Any, step: int, score: float) -> str:
    result = {"env_step": step, "eval_value": score, "training_iteration": step // 100}
    return base_of(made).on_trial_result(CONTROLLER, trial, result)


@pytest.mark.parametrize("base", [None, "median"])
def test_the_median_rule_compares_a_new_trial_with_those_of_before(tmp_path, base):
    made = scheduler("median", grace_period=100)
    if base:
        made = scheduler("resource_changing", base=base, grace_period=100)
    recall_ended(made, sweep_of(tmp_path, *[(10.0, 10.0, 10.0)] * 3))
    worse, better = Trial("mock", stub=True), Trial("mock", stub=True)
    made.on_trial_add(CONTROLLER, worse)
    assert judged(made, worse, 200, 1.0) == TrialScheduler.STOP
    assert judged(made, better, 200, 11.0) == TrialScheduler.CONTINUE


def test_an_open_trial_that_the_median_rule_would_have_stopped_is_judged_when_it_goes_on(tmp_path):
    made = scheduler("median", grace_period=100)
    recall_ended(made, sweep_of(tmp_path, *[(10.0, 10.0, 10.0)] * 3))
    trial = Trial("mock", stub=True)
    made.on_trial_add(CONTROLLER, trial)
    recall_open(made, trial, written(tmp_path / "open", 1.0, 1.0))
    assert judged(made, trial, 300, 1.0) == TrialScheduler.STOP


def test_trials_without_an_evaluation_or_without_a_number_say_nothing(tmp_path):
    made = scheduler("median", grace_period=100, min_samples_required=1)
    recall_ended(made, sweep_of(tmp_path, (), (float("nan"),)))
    assert judged(made, Trial("mock", stub=True), 100, 1.0) == TrialScheduler.CONTINUE


def test_asha_knows_how_far_others_came(tmp_path):
    made = scheduler("asha", grace_period=100, reduction_factor=3)
    recall_ended(made, sweep_of(tmp_path, *[(10.0,)] * 5))
    trial = Trial("mock", stub=True)
    made.on_trial_add(CONTROLLER, trial)
    assert judged(made, trial, 100, 1.0) == TrialScheduler.STOP


def test_evaluations_are_numbered_as_tune_did(tmp_path):
    rows = numbered_rows(written(tmp_path / "trial", 1.0, 2.0))
    assert [row["training_iteration"] for row in rows] == [1, 2]
