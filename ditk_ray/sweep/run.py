"""Running a prepared sweep with Ray Tune, to its end or to Ctrl-C."""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ray import tune
from ray.air._internal import usage
from ray.tune.experiment import Trial
from ray.tune.search import BasicVariantGenerator
from ray.tune.stopper import CombinedStopper, Stopper

import ditk_ray
from ditk_ray.config.config_file import render_config
from ditk_ray.config.whole_file import write_whole
from ditk_ray.errors import BadConfigError, DitkRayError, MetricMissingError, Problem
from ditk_ray.provenance.masking import mask_text
from ditk_ray.provenance.snapshot import write_provenance
from ditk_ray.search.schedulers import checkpoints_kept
from ditk_ray.search.stoppers import build_stopper
from ditk_ray.sweep.description import describe_job
from ditk_ray.sweep.interrupts import Interrupts
from ditk_ray.sweep.nodes import cluster_nodes, count_slots
from ditk_ray.sweep.ray_session import local_ray
from ditk_ray.sweep.setup import PreparedSweep, make_folder
from ditk_ray.tracking.artifacts import BEST_CONFIG_FILE
from ditk_ray.tracking.lock import sweep_lock
from ditk_ray.tracking.observer import SweepListener, SweepObserver, own_metrics
from ditk_ray.tracking.record import SweepRecord, SweepStatus, TrialState
from ditk_ray.tracking.recorder import Recorder
from ditk_ray.trial.report_keys import ENDED
from ditk_ray.trial.shipping import Shipped
from ditk_ray.trial.spec import TrialPlan
from ditk_ray.trial.trainable import TrialTrainable

_log = logging.getLogger(__name__)

TUNE_FOLDER = "tune"
"""Where Ray Tune keeps its own state, inside the sweep's folder."""


@dataclass(frozen=True)
class SweepOutcome:
    """How a sweep ended."""

    record: SweepRecord
    folder: Path
    seconds: float
    """How long Ray Tune ran, from its start to its end."""

    @property
    def succeeded(self) -> bool:
        """Whether it finished and at least one trial got a score without failing."""
        good = (TrialState.SUCCEEDED, TrialState.STOPPED)
        return self.record.status is SweepStatus.FINISHED and any(
            trial.state in good and self.record.score(trial) is not None
            for trial in self.record.trials.values()
        )

    @property
    def best_config(self) -> Path | None:
        """The runnable config of the best trial."""
        path = self.folder / BEST_CONFIG_FILE
        return path if path.is_file() else None


def run_sweep(
    sweep: PreparedSweep,
    listeners: Sequence[SweepListener] = (),
    reporter: Any = None,
    say: Callable[[str], None] = _log.warning,
) -> SweepOutcome:
    """Run all trials and return how it went; Ctrl-C ends it early and cleanly.

    `reporter` is a Ray Tune `ProgressReporter` to use besides the listeners, and
    `say` tells the user what the recording has to say.
    Raises `MetricMissingError` if the metric is not among those reported.
    """
    with contextlib.ExitStack() as stack:
        if sweep.options.run_mode == "local":
            stack.enter_context(local_ray())
            count_slots(sweep.resources, cluster_nodes())
        make_folder(sweep)
        stack.enter_context(sweep_lock(sweep.folder))
        try:
            _keep_provenance(sweep)
            recorders = [Recorder(sweep.folder, sweep.tracking, say)] if sweep.tracking else []
        except OSError as error:
            problem = Problem(f"--storage_path {sweep.folder.parent}", f"cannot be used: {error}")
            raise BadConfigError(problem) from error
        return _fit(sweep, [*listeners, *recorders], reporter)


def _fit(sweep: PreparedSweep, listeners: Sequence[SweepListener], reporter: Any) -> SweepOutcome:
    job = sweep.job
    record = SweepRecord(sweep.name, job.metric, job.mode, job=describe_job(sweep))
    brake = _Brake(job.metric, may_come_last=callable(job.entry))
    observer = SweepObserver(record, sweep.folder, job.space, listeners, brake.check)
    plan = sweep.trial_plan()
    _skip_callback_census()
    observer.begin()
    status = SweepStatus.FAILED
    begun = time.monotonic()
    try:
        with Interrupts() as interrupts:
            tuner = build_tuner(sweep, plan, observer, brake, reporter)
            begun = time.monotonic()
            tuner.fit()
        status = _status(brake, interrupts)
    except KeyboardInterrupt:
        status = SweepStatus.INTERRUPTED
    finally:
        seconds = time.monotonic() - begun
        observer.settle(status)
        try:
            _keep_files(record, plan)
        finally:  # also when somebody is in a hurry
            observer.end()
    if brake.error is not None:
        raise brake.error
    return SweepOutcome(record, sweep.folder, seconds)


def _keep_provenance(sweep: PreparedSweep) -> None:
    """Write down which code is about to run."""
    job = sweep.job
    places = {"ditk_ray": Path(ditk_ray.__file__), "working directory": Path.cwd()}
    places |= {"job": job.file} if job.file else {}
    places |= {"config": Path(job.config.source)} if job.config.source else {}
    nodes = {node.name: dict(node.resources) for node in sweep.nodes}
    resources = {"trial": sweep.resources.for_ray(), "nodes": nodes}
    kept = write_provenance(sweep.folder, places, resources, sweep.options.command)
    if job.file:
        text = job.file.read_text(encoding="utf-8", errors="replace")
        (kept / job.file.name).write_text(mask_text(text), encoding="utf-8")


def _keep_files(record: SweepRecord, plan: TrialPlan) -> None:
    """Write the best config and the report; a sweep without them is still a sweep."""
    try:
        _write_best(record, plan)
    except OSError as error:
        _log.warning("%s was not written: %s", BEST_CONFIG_FILE, error)
    try:
        from ditk_ray.report.page import write_report  # plotting libraries: not before it is needed

        write_report(plan.sweep_folder)
    except Exception as error:
        _log.warning("no report was written: %s: %s", type(error).__name__, error)


def build_tuner(
    sweep: PreparedSweep,
    plan: TrialPlan,
    observer: SweepObserver,
    brake: Stopper,
    reporter: Any = None,
) -> tune.Tuner:
    """Put Ray Tune together."""
    job = sweep.job
    trainable = tune.with_resources(
        tune.with_parameters(TrialTrainable, plan=Shipped.pack(plan, plan.python_path)),
        sweep.resources.for_ray(),
    )
    stoppers = [item for item in (brake, build_stopper(job.stopper)) if item is not None]
    search = job.searcher or BasicVariantGenerator(
        random_state=sweep.options.seed, max_concurrent=sweep.concurrency
    )
    return tune.Tuner(
        trainable,
        param_space=job.space.tune_space(),
        tune_config=tune.TuneConfig(
            metric=job.metric,
            mode=job.mode,
            search_alg=search,
            scheduler=job.scheduler,
            num_samples=job.num_samples,
            max_concurrent_trials=sweep.concurrency if job.searcher else None,
            time_budget_s=job.max_time,
            reuse_actors=True,
            trial_name_creator=trial_name,
            trial_dirname_creator=trial_name,
        ),
        run_config=tune.RunConfig(
            name=TUNE_FOLDER,
            storage_path=str(sweep.folder),
            stop=CombinedStopper(*stoppers),
            callbacks=[observer],
            checkpoint_config=_checkpointing(sweep),
            progress_reporter=reporter,
            verbose=0 if reporter is None else 1,
        ),
    )


class _Brake(Stopper):
    """Stops the whole sweep when its first result shows that it is in vain."""

    def __init__(self, metric: str, may_come_last: bool) -> None:
        self._metric = metric
        self._may_come_last = may_come_last
        self._is_checked = False
        self._has_warned = False
        self.error: DitkRayError | None = None

    def check(self, result: dict[str, Any]) -> None:
        """Look for the metric in a result; a user's own function may return it last."""
        if self._is_checked or self._metric in result:
            self._is_checked = True
            return
        told = sorted(key for key, value in own_metrics(result).items() if _is_number(value))
        message = (
            f"metric {self._metric!r} is not among those that trials report: "
            f"{', '.join(told)}\nset the JobCfg's `metric` or --metric to one of them"
        )
        if ENDED in result or not self._may_come_last:
            self.error = MetricMissingError(message)
        elif not self._has_warned:
            self._has_warned = True
            _log.warning("%s, or return it from the entry", message)

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        """Never end a single trial."""
        return False

    def stop_all(self) -> bool:
        """Say whether to end them all."""
        return self.error is not None


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _skip_callback_census() -> None:
    """Keep Tune from importing MLflow and W&B only to count their callbacks.

    The count is for Ray's usage statistics, which are off; the imports take over
    two seconds before the first trial.
    """
    if os.environ.get("RAY_USAGE_STATS_ENABLED") == "0":
        usage.tag_callbacks = lambda callbacks: False


def trial_name(trial: Trial) -> str:
    """Name a trial by the end of its id, a number unless a searcher chose otherwise."""
    return f"trial_{trial.trial_id.rpartition('_')[2]}"


def _checkpointing(sweep: PreparedSweep) -> tune.CheckpointConfig:
    if not sweep.checkpoints:
        return tune.CheckpointConfig(checkpoint_frequency=0, checkpoint_at_end=False)
    kept = checkpoints_kept(sweep.job.scheduler)
    return tune.CheckpointConfig(checkpoint_frequency=1, num_to_keep=kept)


def _status(brake: _Brake, interrupts: Interrupts) -> SweepStatus:
    if brake.error is not None:
        return SweepStatus.FAILED
    return SweepStatus.INTERRUPTED if interrupts.happened else SweepStatus.FINISHED


def _write_best(record: SweepRecord, plan: TrialPlan) -> None:
    best = record.best()
    if best is None:
        return
    title = f"The best trial of {record.name}: {best.id}, {record.metric} {record.score(best):g}."
    text = render_config(plan.config_of(best.params), plan.call_of(plan.seeds[0]), title)
    write_whole(plan.sweep_folder / BEST_CONFIG_FILE, text)
