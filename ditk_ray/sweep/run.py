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

from ray.air._internal import usage

import ditk_ray
from ditk_ray.config.config_file import render_config
from ditk_ray.errors import BadConfigError, Problem
from ditk_ray.provenance.secrets import mask_text
from ditk_ray.provenance.snapshot import write_provenance
from ditk_ray.ray_cluster.nodes import cluster_nodes
from ditk_ray.ray_cluster.session import local_ray
from ditk_ray.record.record import (
    SweepRecord,
    SweepStatus,
    TrialRecord,
    TrialState,
    now,
    write_record,
)
from ditk_ray.record.sweep_folder import BEST_CONFIG_FILE
from ditk_ray.report.page import write_report
from ditk_ray.sweep.observer import SweepListener, SweepObserver
from ditk_ray.sweep.prepare import (
    PreparedSweep,
    count_fitting_slots,
    describe_job,
    first_tasks,
    keep_job,
    make_folder,
)
from ditk_ray.sweep.resume import recall_stopper
from ditk_ray.sweep.stopping import Interrupts, SweepStopper
from ditk_ray.sweep.trials import Ledger, trial_id
from ditk_ray.sweep.tuner import build_tuner, tune_settings
from ditk_ray.tracking.recorder import Recorder
from ditk_ray.trial.plan import TrialPlan
from ditk_ray.util.files import write_whole
from ditk_ray.util.locks import HeldError, sweep_lock

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


def run_sweep(
    sweep: PreparedSweep,
    listeners: Sequence[SweepListener] = (),
    reporter: Any = None,
    say: Callable[[str], None] = _log.warning,
) -> SweepOutcome:
    """Run all trials and return how it went; Ctrl-C ends it early and cleanly.

    `reporter` is a Ray Tune `ProgressReporter` to use besides the listeners, and
    `say` shows the user what the recording reports.
    Raises `MetricMissingError` if the metric is not among those reported.
    """
    with contextlib.ExitStack() as stack:
        sweep.executor.check(first_tasks(sweep))
        if sweep.options.run_mode != "remote":
            stack.enter_context(local_ray())
            count_fitting_slots(sweep.resources, cluster_nodes())
        try:
            make_folder(sweep)
            stack.enter_context(sweep_lock(sweep.folder))
            keep_job(sweep)
            record = _begun(sweep)
            _keep_provenance(sweep)
            ledger = stack.enter_context(contextlib.closing(Ledger(sweep.folder)))
            recorders = [Recorder(sweep.folder, sweep.tracking, say)] if sweep.tracking else []
        except HeldError as error:
            raise BadConfigError(Problem(f"SWEEP {sweep.name}", "runs at this moment")) from error
        except OSError as error:
            problem = Problem(f"--storage_path {sweep.folder.parent}", f"cannot be used: {error}")
            raise BadConfigError(problem) from error
        with sweep.executor.serve(say):
            return _fit(sweep, record, ledger, [*listeners, *recorders], reporter)


def _begun(sweep: PreparedSweep) -> SweepRecord:
    """Return the sweep's record; by a new one it is found, should its process be killed now."""
    job, described = sweep.job, describe_job(sweep)
    if sweep.earlier:
        sweep.earlier.record.job = described
        return sweep.earlier.record
    record = SweepRecord(sweep.name, job.metric, job.mode, started=now(), job=described)
    record.more_objectives = job.more_objectives
    write_record(record, sweep.folder)
    return record


def _fit(
    sweep: PreparedSweep,
    record: SweepRecord,
    ledger: Ledger,
    listeners: Sequence[SweepListener],
    reporter: Any,
) -> SweepOutcome:
    job, stopper = sweep.job, sweep.stopper
    observer = SweepObserver(record, sweep.folder, sweep.search.space, listeners, stopper)
    needed = {item.metric: "metric" for item in job.objectives}
    for name in sorted(stopper.metrics) if stopper else ():
        needed.setdefault(name, "stopper")
    sweep_stopper = SweepStopper(
        needed, callable(job.entry), observer.suspend, job.max_same_failures
    )

    def note_end(trial: TrialRecord) -> None:
        ledger.ended(trial)
        sweep_stopper.look_at_end(record, trial)
        if stopper:
            stopper.end_trial(trial_id(trial.id))

    observer.check, observer.note_end = sweep_stopper.check, note_end
    if stopper and sweep.earlier:
        recall_stopper(stopper, sweep.earlier)
    plan = sweep.trial_plan()
    if os.environ.get("RAY_USAGE_STATS_ENABLED") == "0":
        # Tune would import MLflow and W&B, which takes over two seconds, only to count callbacks.
        usage.tag_callbacks = lambda callbacks: False
    observer.begin()
    status = SweepStatus.FAILED
    begun = time.monotonic()
    try:
        with Interrupts(sweep_stopper.interrupt), tune_settings(sweep):
            tuner = build_tuner(sweep, plan, observer, sweep_stopper, ledger, reporter)
            begun = time.monotonic()
            tuner.fit()
        status = sweep_stopper.status
    except KeyboardInterrupt:
        status = SweepStatus.INTERRUPTED
    finally:
        seconds = time.monotonic() - begun
        observer.settle(status, sweep_stopper.why)
        try:
            _keep_files(record, plan)
        finally:  # also after a second Ctrl-C
            observer.end()
    if sweep_stopper.error is not None:
        raise sweep_stopper.error
    return SweepOutcome(record, sweep.folder, seconds)


def _keep_provenance(sweep: PreparedSweep) -> None:
    job = sweep.job
    places = {"ditk_ray": Path(ditk_ray.__file__), "working directory": Path.cwd()}
    # A sweep that is resumed no longer needs its job's file, and has kept its text.
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
        write_report(plan.sweep_folder)
    except Exception as error:
        _log.warning("no report was written: %s: %s", type(error).__name__, error)


def _write_best(record: SweepRecord, plan: TrialPlan) -> None:
    best = record.best()
    if best is None:
        return
    title = f"The best trial of {record.name}: {best.id}, {record.metric} {record.score(best):g}."
    text = render_config(plan.config_of(best.params), plan.call_of(plan.job.seeds[0]), title)
    write_whole(plan.sweep_folder / BEST_CONFIG_FILE, text)
