"""Ray Tune, put together for a sweep."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from typing import Any

from ray import tune
from ray.tune.experiment import Trial
from ray.tune.stopper import CombinedStopper

from ditk_ray.search.schedulers import allows_actor_reuse, checkpoints_kept, wants_all_trials
from ditk_ray.sweep.brake import Brake
from ditk_ray.sweep.controlled_scheduler import ControlledScheduler
from ditk_ray.sweep.desk import Desk
from ditk_ray.sweep.draws import Draws, SearcherDraws, SpaceDraws
from ditk_ray.sweep.earlier import EarlierSweep
from ditk_ray.sweep.last_saves import LastSaves
from ditk_ray.sweep.ledger import Ledger
from ditk_ray.sweep.losses import Losses
from ditk_ray.sweep.places import Places
from ditk_ray.sweep.scheduler_history import recall_ended
from ditk_ray.sweep.setup import PreparedSweep
from ditk_ray.sweep.taken_up import TakenUp
from ditk_ray.sweep.trial_source import TrialSource, trial_id, trial_name
from ditk_ray.tracking.observer import CANCELLED, SweepObserver
from ditk_ray.tracking.record import SweepRecord, TrialRecord, TrialState
from ditk_ray.tracking.requests import discard_requests
from ditk_ray.trial.shipping import Shipped
from ditk_ray.trial.spec import TrialPlan
from ditk_ray.trial.trainable import TrialTrainable

TUNE_FOLDER = "tune"
"""Where Ray Tune keeps its own state, inside the sweep's folder."""

_NEVER = str(10**9)


def build_tuner(
    sweep: PreparedSweep,
    plan: TrialPlan,
    observer: SweepObserver,
    brake: Brake,
    ledger: Ledger,
    reporter: Any = None,
) -> tune.Tuner:
    """Put Ray Tune together, to start a sweep or to go on with one."""
    trainable = tune.with_resources(
        tune.with_parameters(TrialTrainable, plan=Shipped.pack(plan, plan.python_path)),
        sweep.resources.for_ray(),
    )
    # What an earlier process left there was its own.
    shutil.rmtree(sweep.folder / TUNE_FOLDER, ignore_errors=True)
    discard_requests(sweep.folder)
    source = _source(sweep, ledger)
    inner = sweep.parts.scheduler
    return tune.Tuner(
        trainable,
        tune_config=tune.TuneConfig(
            search_alg=source,
            scheduler=_controlled(sweep, inner, source, observer.record, brake),
            num_samples=sweep.trial_count,
            time_budget_s=sweep.seconds_left,
            reuse_actors=allows_actor_reuse(inner),
            trial_name_creator=trial_name,
            trial_dirname_creator=trial_name,
        ),
        run_config=tune.RunConfig(
            name=TUNE_FOLDER,
            storage_path=str(sweep.folder),
            stop=CombinedStopper(*[one for one in (brake, sweep.parts.stopper) if one is not None]),
            callbacks=[observer],
            # Trials keep their own checkpoints; Tune asks for one only to pause or to clone.
            checkpoint_config=tune.CheckpointConfig(num_to_keep=checkpoints_kept(inner)),
            failure_config=tune.FailureConfig(max_failures=-1),
            progress_reporter=reporter,
            verbose=0 if reporter is None else 1,
        ),
    )


def _controlled(
    sweep: PreparedSweep, inner: Any, source: TrialSource, record: SweepRecord, brake: Brake
) -> ControlledScheduler:
    inner.set_search_properties(sweep.job.metric, sweep.job.mode)
    if sweep.earlier:
        recall_ended(inner, sweep.earlier.record)
    priorities = {trial.id: trial.priority for trial in record.trials.values()}
    places = Places(priorities)
    desk = Desk(sweep.folder, record, places, sweep.checkpoints, brake.interrupt)
    losses = Losses(sweep.job.retries["lost"], sweep.resources)
    taken_up = TakenUp(sweep.earlier, inner, places, losses, sweep.resources)

    def look(controller: Any) -> None:
        desk.look(controller)
        losses.look(controller.get_live_trials())

    def added(trial: Trial) -> None:
        taken_up.take(trial)
        losses.admit(trial)

    saves = LastSaves(sweep.folder, sweep.checkpoints)
    return ControlledScheduler(inner, places, source, look, losses.note, added, saves)


def _source(sweep: PreparedSweep, ledger: Ledger) -> TrialSource:
    earlier = sweep.earlier
    return TrialSource(
        _draws(sweep),
        ledger,
        sweep.parts.space,
        total=sweep.trial_count,
        concurrency=_at_once(sweep),
        made=earlier.made if earlier else 0,
        unfinished=earlier.unfinished if earlier else (),
    )


def _at_once(sweep: PreparedSweep) -> int:
    """Return how many trials Tune is given at once: all, if they wait for each other.

    Then the resources decide how many run, unless fewer are wanted than these would hold.
    """
    is_limited = (sweep.job.max_concurrent or sweep.slots) < sweep.slots
    if wants_all_trials(sweep.parts.scheduler) and not is_limited:
        return sweep.trial_count
    return sweep.concurrency


def _draws(sweep: PreparedSweep) -> Draws:
    made = sweep.earlier.made if sweep.earlier else 0
    if sweep.parts.searcher is None:
        points = sweep.parts.first
        return SpaceDraws(sweep.parts.space.tune_space(), sweep.sampling_seed, points, passed=made)
    draws = SearcherDraws(sweep.parts.searcher, sweep.folder)
    if sweep.earlier is not None:
        draws.restore()
        _catch_up(draws, sweep.earlier)
    return draws


def _catch_up(draws: SearcherDraws, earlier: EarlierSweep) -> None:
    """Let a searcher know of what was made and what ended after its state was saved."""
    for name, drawn in earlier.drawn.items():
        draws.recognise(trial_id(name), dict(drawn))
    for trial in earlier.record.trials.values():
        if trial.state.is_final:
            scored = trial.metrics if _is_scored(trial) else None
            draws.ended(trial_id(trial.id), dict(earlier.drawn[trial.id]), scored)
    for name in earlier.reopened:
        draws.reopen(trial_id(name))


def _is_scored(trial: TrialRecord) -> bool:
    """Say whether a searcher was told a score at the trial's end: a failed one tells none."""
    has_ended_well = trial.state in (TrialState.SUCCEEDED, TrialState.STOPPED)
    return has_ended_well and trial.why != CANCELLED


@contextlib.contextmanager
def tune_settings(sweep: PreparedSweep) -> Iterator[None]:
    """Have Tune run with settings that it takes from the environment only."""
    wanted = {
        # As many trials may be on their way to a place as there are places: with a searcher
        # Tune would otherwise start one actor after the other.
        "TUNE_MAX_PENDING_TRIALS_PG": str(_at_once(sweep)),
        # The sweep is resumed from what it keeps itself.
        "TUNE_GLOBAL_CHECKPOINT_S": _NEVER,
    }
    earlier = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in earlier.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
