"""A sweep as an earlier process left it: what it was started with, what is done, what is left.

Schedulers that compare each trial with all others at the same step are shown the evaluations
of the earlier ones. Those that move a whole population or bracket together have nothing to
compare a new bracket with, and begin one with the unfinished trials.
"""

from __future__ import annotations

import contextlib
import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from ray.tune.experiment import Trial
from ray.tune.result import TRAINING_ITERATION
from ray.tune.schedulers import AsyncHyperBandScheduler, MedianStoppingRule, TrialScheduler

import ditk_ray
from ditk_ray.config.job_spec import JobSpec
from ditk_ray.config.options import SweepOptions
from ditk_ray.config.space import SearchSpace, is_grid
from ditk_ray.config.terms import FailureKind
from ditk_ray.errors import BadConfigError, Problem
from ditk_ray.execution.pickled_call import Pickled
from ditk_ray.record.record import (
    SweepRecord,
    SweepStatus,
    TrialRecord,
    TrialState,
    read_record,
    trial_from_dict,
)
from ditk_ray.record.sweep_folder import STATE_FOLDER, sweep_to_type
from ditk_ray.record.trial_folder import own_metrics_of, read_metrics
from ditk_ray.search.schedulers import base_of
from ditk_ray.search.stoppers import RuleStopper
from ditk_ray.sweep.control import TrialQueue
from ditk_ray.sweep.observer import CANCELLED
from ditk_ray.sweep.stopping import LossPolicy
from ditk_ray.sweep.trials import (
    Drawn,
    Ledger,
    LedgerEntries,
    SearcherSampler,
    read_ledger,
    trial_id,
)
from ditk_ray.trial.reports import ATTEMPT, read_failures, standing
from ditk_ray.util.files import replace_file
from ditk_ray.util.locks import is_running
from ditk_ray.util.plain import jsonable

JOB_FILE = "job.pkl"
VERSION_FILE = "version.txt"

_COMPARING = (AsyncHyperBandScheduler, MedianStoppingRule)

_NOBODY = SimpleNamespace(get_live_trials=lambda: (), get_trials=lambda: ())
"""Stands for Tune's controller, where no trial waits."""


@dataclass(frozen=True)
class SavedJob:
    """A checked job, the options that it runs with, and the seed that its trials are drawn by."""

    job: JobSpec
    options: SweepOptions
    sampling_seed: int
    identity: str = ""
    """What no other sweep has, wherever it runs."""


def save_job(folder: Path, saved: SavedJob, python_path: tuple[str, ...]) -> None:
    """Keep a job; functions of the user's own files are kept whole, as they are now."""
    (folder / STATE_FOLDER).mkdir(mode=0o700, exist_ok=True)
    replace_file(folder / STATE_FOLDER / VERSION_FILE, ditk_ray.__version__.encode())
    pickled = pickle.dumps(Pickled.pack(saved, python_path))
    replace_file(folder / STATE_FOLDER / JOB_FILE, pickled)


def load_job_of(folder: Path) -> SavedJob:
    """Load what a sweep was started with; raises `BadConfigError`."""
    path = folder / STATE_FOLDER / JOB_FILE
    try:
        saved: SavedJob = pickle.loads(path.read_bytes()).unpack()
    except FileNotFoundError as error:
        what = f"has no {path.relative_to(folder)}: it was made by an earlier version, or never ran"
        raise BadConfigError(Problem(f"SWEEP {folder.name}", what)) from error
    except Exception as error:
        file = path.with_name(VERSION_FILE)
        version = file.read_text() if file.is_file() else "0.1.0"  # which wrote none
        what = (
            f"was saved by ditk_ray {version} and cannot be loaded: {type(error).__name__}: {error}"
        )
        hint = "resume it with that version and with its own modules and packages in place"
        raise BadConfigError(Problem(f"SWEEP {folder.name}", what, hint)) from error
    return saved


@dataclass(frozen=True)
class EarlierSweep:
    """What a sweep is resumed from."""

    folder: Path
    saved: SavedJob
    record: SweepRecord
    """With every trial that was made; those that are not over are pending."""
    unfinished: Mapping[str, Drawn]
    """What its open trials resume with, by name."""
    drawn: Mapping[str, Drawn]
    """All that was drawn for each trial, by its name."""
    reopened: frozenset[str] = frozenset()
    """The unfinished trials that have failed before and are run again."""
    ended_by: str | None = None
    """The rule about the sweep by which it has finished, if one ended it."""

    @property
    def held(self) -> tuple[str, ...]:
        """The unfinished trials that a person has paused."""
        return tuple(name for name in self.unfinished if self.record.trials[name].is_held)

    @property
    def made(self) -> int:
        return len(self.record.trials)


def read_earlier(folder: Path, retry_failed: bool = False) -> EarlierSweep:
    """Read where a sweep stands; with `retry_failed` its failed trials count as not over.

    Nothing is changed but that such trials are opened again in the ledger. Raises
    `BadConfigError` if it runs, or cannot be resumed.
    """
    if is_running(folder):
        name = sweep_to_type(folder)
        hint = (
            f"look at it with `ditk-ray status {name} --watch`, or stop it: ditk-ray cancel {name}"
        )
        raise BadConfigError(Problem(f"SWEEP {folder.name}", "runs at this moment", hint))
    saved = load_job_of(folder)
    entries = read_ledger(folder)
    if retry_failed:
        _reopen_failed(folder, entries)
    record = read_record(folder)
    record.trials = {
        name: _trial(folder, name, entries, record.trials.get(name), saved)
        for name in entries.drawn
    }
    unfinished = {}
    for name, trial in record.trials.items():
        if not trial.state.is_final:
            unfinished[name] = {**entries.drawn[name], **trial.params}
            for row in standing(read_metrics(Path(trial.dir))):
                trial.attempt = row.get(ATTEMPT, trial.attempt)
                record.add_report(trial, own_metrics_of(row))
    ended_by = record.why if record.status is SweepStatus.FINISHED else None
    record.status, record.ended, record.why = SweepStatus.RUNNING, None, None
    reopened = frozenset(entries.reopened)
    return EarlierSweep(folder, saved, record, unfinished, entries.drawn, reopened, ended_by)


def _reopen_failed(folder: Path, entries: LedgerEntries) -> None:
    with contextlib.closing(Ledger(folder)) as ledger:
        for name, row in list(entries.ended.items()):
            if row["state"] == TrialState.FAILED:
                ledger.reopened(name)
                entries.reopen(name)


def _trial(
    folder: Path,
    name: str,
    entries: LedgerEntries,
    known: TrialRecord | None,
    saved: SavedJob,
) -> TrialRecord:
    if name in entries.ended:
        return trial_from_dict(entries.ended[name], folder)
    params = _params(saved.job.space, entries.drawn[name], known)
    trial = TrialRecord(name, params, dir=str(folder / name))
    if known is not None:
        trial.changes, trial.started = known.changes, known.started
        trial.failures, trial.priority = known.failures, known.priority
        trial.is_held = known.is_held
    return trial


def _params(space: SearchSpace, drawn: dict[str, Any], known: TrialRecord | None) -> dict[str, Any]:
    """Return a trial's parameters as they were drawn, except for what a scheduler has changed.

    The record has been JSON, which knows no tuples and no infinity.
    """
    if known is None or not known.changes:
        return space.active(drawn)
    possible = {name: [value] for name, value in drawn.items()}
    for item in space.parameters:
        domain = item.domain
        of_domain = domain["grid_search"] if is_grid(domain) else getattr(domain, "categories", ())
        possible.setdefault(item.name, []).extend(of_domain)
    return {
        name: next((one for one in possible.get(name, ()) if jsonable(one) == value), value)
        for name, value in known.params.items()
    }


def bring_back(
    trial: Trial,
    earlier: EarlierSweep,
    scheduler: TrialScheduler,
    queue: TrialQueue,
    loss_policy: LossPolicy,
    max_memory: int | None,
) -> None:
    """Bring an unfinished trial to where it was; Tune has just been given it, and not before.

    The scheduler learns what it has evaluated, it has the memory that it was given after it
    had run out of it, and one that a person has paused stays paused.
    """
    folder = earlier.folder / str(trial)
    recall_open(scheduler, trial, folder)
    kinds = {failure.kind for failure in read_failures(folder)}
    if max_memory is not None and FailureKind.OUT_OF_MEMORY in kinds:
        loss_policy.grow(trial, max_memory)
    if earlier.record.trials[str(trial)].is_held:
        queue.held.add(str(trial))
        queue.wait(str(trial))
        trial.set_status(Trial.PAUSED)


@dataclass(frozen=True)
class _Past:
    """Stands for a trial that has ended; schedulers use it as a key, too."""

    trial_id: str
    status: str = Trial.TERMINATED


def recall_ended(scheduler: TrialScheduler, record: SweepRecord) -> None:
    """Tell a scheduler of the trials that have ended, in the order of their ends."""
    base = base_of(scheduler)
    if not isinstance(base, _COMPARING):
        return
    ended = [trial for trial in record.trials.values() if trial.state.is_final]
    for trial in sorted(ended, key=lambda one: one.ended or ""):
        past: Any = _Past(trial_id(trial.id))
        base.on_trial_add(_NOBODY, past)
        recall_open(base, past, Path(trial.dir))


def recall_open(scheduler: TrialScheduler, trial: Any, folder: Path) -> None:
    """Tell a scheduler, which has just been given a trial, what that has evaluated so far."""
    base, rows = base_of(scheduler), numbered_rows(folder)
    if isinstance(base, MedianStoppingRule):
        # Not to be decided on: it may never be shown a trial again that it has decided to stop,
        # and with others to compare with than at that time it would decide otherwise.
        needed = (base._time_attr, base._metric)
        whole = [row for row in rows if all(isinstance(row.get(name), Real) for name in needed)]
        if whole:  # the rule looks at the last evaluation of every trial that it knows
            base._results[trial].extend(whole)
    elif isinstance(base, _COMPARING):
        for row in rows:  # what it decides now was decided then
            base.on_trial_result(_NOBODY, trial, row)


def numbered_rows(folder: Path) -> list[dict[str, Any]]:
    """Return a trial's evaluations with the number that Tune gave to each, from 1 on."""
    rows: list[Mapping[str, Any]] = [*standing(read_metrics(folder))]
    return [{TRAINING_ITERATION: number, **row} for number, row in enumerate(rows, start=1)]


def recall_stopper(stopper: RuleStopper, earlier: EarlierSweep) -> None:
    """Bring a stopper to where it was when the earlier process ended."""
    stopper.begin(earlier.record.worked_seconds)
    for trial in earlier.record.trials.values():
        known = {"trial_id": trial_id(trial.id), "config": earlier.drawn[trial.id]}
        rows = [{**known, **row} for row in numbered_rows(Path(trial.dir))]
        stopper.replay(trial_id(trial.id), rows)
        if trial.state.is_final:
            stopper.end_trial(trial_id(trial.id))


def catch_up(sampler: SearcherSampler, earlier: EarlierSweep) -> None:
    """Let a searcher know of what was made and what ended after its state was saved."""
    for name, drawn in earlier.drawn.items():
        sampler.recognise(trial_id(name), dict(drawn))
    for trial in earlier.record.trials.values():
        if trial.state.is_final:
            scored = trial.metrics if _is_scored(trial) else None
            sampler.ended(trial_id(trial.id), dict(earlier.drawn[trial.id]), scored)
    for name in earlier.reopened:
        sampler.reopen(trial_id(name))


def _is_scored(trial: TrialRecord) -> bool:
    has_ended_well = trial.state in (TrialState.SUCCEEDED, TrialState.STOPPED)
    return has_ended_well and trial.why != CANCELLED
