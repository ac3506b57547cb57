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

from ditk_ray.execution.pickled_call import Pickled
from ditk_ray.record.record import SweepRecord
from ditk_ray.record.sweep_folder import discard_requests
from ditk_ray.search.schedulers import allows_actor_reuse, checkpoints_kept, wants_all_trials
from ditk_ray.sweep.control import ControlledScheduler, PauseCheckpoints, RequestHandler, TrialQueue
from ditk_ray.sweep.observer import SweepObserver
from ditk_ray.sweep.prepare import PreparedSweep
from ditk_ray.sweep.resume import bring_back, catch_up, recall_ended
from ditk_ray.sweep.stopping import LossPolicy, SweepStopper
from ditk_ray.sweep.trials import (
    Ledger,
    SearcherSampler,
    SpaceSampler,
    TrialGenerator,
    TrialSampler,
    trial_name,
)
from ditk_ray.trial.plan import TrialPlan
from ditk_ray.trial.trainable import TrialTrainable

TUNE_FOLDER = "tune"
"""Where Ray Tune keeps its own state, inside the sweep's folder."""


def build_tuner(
    sweep: PreparedSweep,
    plan: TrialPlan,
    observer: SweepObserver,
    sweep_stopper: SweepStopper,
    ledger: Ledger,
    reporter: Any = None,
) -> tune.Tuner:
    """Put Ray Tune together, to start a sweep or to resume one."""
    trainable = tune.with_resources(
        tune.with_parameters(TrialTrainable, plan=Pickled.pack(plan, plan.python_path)),
        sweep.resources.for_ray(),
    )
    # What an earlier process left there was its own.
    shutil.rmtree(sweep.folder / TUNE_FOLDER, ignore_errors=True)
    discard_requests(sweep.folder)
    inner, earlier = sweep.scheduler, sweep.earlier
    generator = TrialGenerator(
        _sampler(sweep),
        ledger,
        sweep.search.space,
        total=sweep.trial_count,
        concurrency=_at_once(sweep),
        made=earlier.made if earlier else 0,
        unfinished=dict(earlier.unfinished) if earlier else {},
    )
    return tune.Tuner(
        trainable,
        tune_config=tune.TuneConfig(
            search_alg=generator,
            scheduler=_controlled(sweep, generator, observer.record, sweep_stopper),
            num_samples=sweep.trial_count,
            time_budget_s=sweep.seconds_left,
            reuse_actors=allows_actor_reuse(inner),
            trial_name_creator=trial_name,
            trial_dirname_creator=trial_name,
        ),
        run_config=tune.RunConfig(
            name=TUNE_FOLDER,
            storage_path=str(sweep.folder),
            stop=CombinedStopper(
                *[one for one in (sweep_stopper, sweep.stopper) if one is not None]
            ),
            callbacks=[observer],
            # Trials keep their own checkpoints; Tune asks for one only to pause or to clone.
            checkpoint_config=tune.CheckpointConfig(num_to_keep=checkpoints_kept(inner)),
            failure_config=tune.FailureConfig(max_failures=-1),
            progress_reporter=reporter,
            verbose=0 if reporter is None else 1,
        ),
    )


def _controlled(
    sweep: PreparedSweep,
    generator: TrialGenerator,
    record: SweepRecord,
    sweep_stopper: SweepStopper,
) -> ControlledScheduler:
    inner, earlier = sweep.scheduler, sweep.earlier
    inner.set_search_properties(sweep.job.metric, sweep.job.mode)
    if earlier:
        recall_ended(inner, earlier.record)
    queue = TrialQueue({trial.id: trial.priority for trial in record.trials.values()})
    handler = RequestHandler(
        sweep.folder, record, queue, sweep.checkpoints, sweep_stopper.interrupt
    )
    loss_policy = LossPolicy(sweep.job.retries["lost"], sweep.resources)
    unfinished = set(earlier.unfinished if earlier else ())

    def look(controller: Any) -> None:
        handler.look(controller)
        loss_policy.look(controller.get_live_trials())

    def added(trial: Trial) -> None:
        if earlier and str(trial) in unfinished:  # one that is retried is added once more
            unfinished.remove(str(trial))
            bring_back(trial, earlier, inner, queue, loss_policy, sweep.resources.max_memory)
        loss_policy.admit(trial)

    pause_checkpoints = PauseCheckpoints(sweep.folder, sweep.checkpoints)
    return ControlledScheduler(
        inner, queue, generator, look, loss_policy.note, added, pause_checkpoints
    )


def _at_once(sweep: PreparedSweep) -> int:
    """Return how many trials Tune is given at once: all, if they wait for each other.

    Then the resources decide how many run, unless fewer are wanted than these would hold.
    """
    is_limited = (sweep.job.max_concurrent or sweep.slots) < sweep.slots
    if wants_all_trials(sweep.scheduler) and not is_limited:
        return sweep.trial_count
    return sweep.concurrency


def _sampler(sweep: PreparedSweep) -> TrialSampler:
    search, made = sweep.search, sweep.earlier.made if sweep.earlier else 0
    if search.searcher is None:
        return SpaceSampler(search.space.tune_space(), sweep.sampling_seed, search.first, made)
    sampler = SearcherSampler(search.searcher, sweep.folder)
    if sweep.earlier is not None:
        sampler.restore()
        catch_up(sampler, sweep.earlier)
    return sampler


@contextlib.contextmanager
def tune_settings(sweep: PreparedSweep) -> Iterator[None]:
    """Have Tune run with settings that it takes from the environment only."""
    wanted = {
        # As many trials may be on their way to a place as there are places: with a searcher
        # Tune would otherwise start one actor after the other.
        "TUNE_MAX_PENDING_TRIALS_PG": str(_at_once(sweep)),
        # The sweep is resumed from what it keeps itself.
        "TUNE_GLOBAL_CHECKPOINT_S": str(10**9),
    }
    earlier = {name: os.environ[name] for name in wanted if name in os.environ}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name in wanted:
            del os.environ[name]
        os.environ.update(earlier)
