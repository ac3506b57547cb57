"""Running a prepared sweep with Ray Tune, to its end or to Ctrl-C."""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ray.air._internal import usage

import ditk_ray
from ditk_ray.cluster.nodes import cluster_nodes
from ditk_ray.cluster.ray_session import local_ray
from ditk_ray.config.config_file import render_config
from ditk_ray.config.job_spec import JobSpec
from ditk_ray.config.whole_file import write_whole
from ditk_ray.errors import BadConfigError, Problem
from ditk_ray.provenance.masking import mask_text
from ditk_ray.provenance.snapshot import write_provenance
from ditk_ray.search.stoppers import RuleStopper
from ditk_ray.sweep.brake import Brake
from ditk_ray.sweep.description import describe_job
from ditk_ray.sweep.dijob_setup import open_office, require_cluster
from ditk_ray.sweep.fitting import fitting_slots
from ditk_ray.sweep.interrupts import Interrupts
from ditk_ray.sweep.ledger import Ledger
from ditk_ray.sweep.scheduler_history import numbered_rows
from ditk_ray.sweep.setup import PreparedSweep, keep_job, make_folder
from ditk_ray.sweep.trial_source import trial_id
from ditk_ray.sweep.tuner import build_tuner, tune_settings
from ditk_ray.tracking.artifacts import BEST_CONFIG_FILE
from ditk_ray.tracking.lock import HeldError, sweep_lock
from ditk_ray.tracking.observer import SweepListener, SweepObserver
from ditk_ray.tracking.record import (
    SweepRecord,
    SweepStatus,
    TrialRecord,
    TrialState,
    now,
    write_record,
)
from ditk_ray.tracking.recorder import Recorder
from ditk_ray.trial.spec import TrialPlan

_log = logging.getLogger(__name__)


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
        if sweep.dijob:
            require_cluster(sweep)
        if sweep.options.run_mode == "local":
            stack.enter_context(local_ray())
            fitting_slots(sweep.resources, cluster_nodes())
        make_folder(sweep)
        stack.enter_context(_locked(sweep.folder))
        try:
            keep_job(sweep)
            record = _begun(sweep)
            _keep_provenance(sweep)
            ledger = stack.enter_context(contextlib.closing(Ledger(sweep.folder)))
            recorders = [Recorder(sweep.folder, sweep.tracking, say)] if sweep.tracking else []
        except OSError as error:
            problem = Problem(f"--storage_path {sweep.folder.parent}", f"cannot be used: {error}")
            raise BadConfigError(problem) from error
        with open_office(sweep, say):
            return _fit(sweep, record, ledger, [*listeners, *recorders], reporter)


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    try:
        with sweep_lock(folder):
            yield
    except HeldError as error:
        raise BadConfigError(Problem(f"SWEEP {folder.name}", "runs at this moment")) from error


def _begun(sweep: PreparedSweep) -> SweepRecord:
    """Return the sweep's record; by a new one it is found, should its process be killed now."""
    job = sweep.job
    if sweep.earlier:
        record = sweep.earlier.record
        record.job = describe_job(sweep)
        return record
    record = SweepRecord(sweep.name, job.metric, job.mode, more_objectives=job.more_objectives)
    record.job, record.started = describe_job(sweep), now()
    write_record(record, sweep.folder)
    return record


def _fit(
    sweep: PreparedSweep,
    record: SweepRecord,
    ledger: Ledger,
    listeners: Sequence[SweepListener],
    reporter: Any,
) -> SweepOutcome:
    job, stopper = sweep.job, sweep.parts.stopper
    observer = SweepObserver(record, sweep.folder, sweep.parts.space, listeners, stopper)
    brake = Brake(
        _needed_metrics(job, stopper), callable(job.entry), observer.suspend, job.max_same_failures
    )

    def note_end(trial: TrialRecord) -> None:
        ledger.ended(trial)
        brake.look_at_end(record, trial)
        if stopper:
            stopper.end_trial(trial_id(trial.id))

    observer.watch(brake.check, note_end)
    _recall_stopper(sweep)
    plan = sweep.trial_plan()
    _skip_callback_census()
    observer.begin()
    status = SweepStatus.FAILED
    begun = time.monotonic()
    try:
        with Interrupts(observer.suspend) as interrupts, tune_settings(sweep):
            tuner = build_tuner(sweep, plan, observer, brake, ledger, reporter)
            begun = time.monotonic()
            tuner.fit()
        status = _status(brake, interrupts)
    except KeyboardInterrupt:
        status = SweepStatus.INTERRUPTED
    finally:
        seconds = time.monotonic() - begun
        observer.settle(status, brake.why)
        try:
            _keep_files(record, plan)
        finally:  # also when somebody is in a hurry
            observer.end()
    if brake.error is not None:
        raise brake.error
    return SweepOutcome(record, sweep.folder, seconds)


def _recall_stopper(sweep: PreparedSweep) -> None:
    """Bring the stopper to where it was when an earlier process ended."""
    stopper = sweep.parts.stopper
    if stopper is None or sweep.earlier is None:
        return
    stopper.begin(sweep.earlier.record.worked_seconds)
    for trial in sweep.earlier.record.trials.values():
        known = {"trial_id": trial_id(trial.id), "config": sweep.earlier.drawn[trial.id]}
        rows = [{**known, **row} for row in numbered_rows(Path(trial.dir))]
        stopper.replay(trial_id(trial.id), rows)
        if trial.state.is_final:
            stopper.end_trial(trial_id(trial.id))


def _keep_provenance(sweep: PreparedSweep) -> None:
    """Write down which code is about to run."""
    job = sweep.job
    places = {"ditk_ray": Path(ditk_ray.__file__), "working directory": Path.cwd()}
    # A sweep that goes on needs its job's file no more, and has kept its text.
    file = job.file if job.file and job.file.is_file() else None
    places |= {"job": file} if file else {}
    places |= {"config": Path(job.config.source)} if job.config.source else {}
    nodes = {node.name: dict(node.resources) for node in sweep.nodes if not node.to_come}
    resources = {"trial": sweep.resources.for_ray(), "nodes": nodes}
    kept = write_provenance(sweep.folder, places, resources, sweep.options.command)
    if file:
        text = file.read_text(encoding="utf-8", errors="replace")
        (kept / file.name).write_text(mask_text(text), encoding="utf-8")


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


def _needed_metrics(job: JobSpec, stopper: RuleStopper | None) -> dict[str, str]:
    """Return the metrics that trials have to report, each with the field that wants it."""
    optimised = {item.metric: "metric" for item in job.objectives}
    looked_at = sorted(stopper.metrics) if stopper else []
    return optimised | {name: "stopper" for name in looked_at if name not in optimised}


def _skip_callback_census() -> None:
    """Keep Tune from importing MLflow and W&B only to count their callbacks.

    The count is for Ray's usage statistics, which are off; the imports take over
    two seconds before the first trial.
    """
    if os.environ.get("RAY_USAGE_STATS_ENABLED") == "0":
        usage.tag_callbacks = lambda callbacks: False


def _status(brake: Brake, interrupts: Interrupts) -> SweepStatus:
    if brake.error is not None or brake.why is not None:
        return SweepStatus.FAILED
    is_interrupted = interrupts.happened or brake.is_interrupted
    return SweepStatus.INTERRUPTED if is_interrupted else SweepStatus.FINISHED


def _write_best(record: SweepRecord, plan: TrialPlan) -> None:
    best = record.best()
    if best is None:
        return
    title = f"The best trial of {record.name}: {best.id}, {record.metric} {record.score(best):g}."
    text = render_config(plan.config_of(best.params), plan.call_of(plan.seeds[0]), title)
    write_whole(plan.sweep_folder / BEST_CONFIG_FILE, text)
