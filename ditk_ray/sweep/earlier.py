"""A sweep as an earlier process left it: what is done, and where to go on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ditk_ray.errors import BadConfigError, Problem
from ditk_ray.sweep.ledger import Ledger, LedgerEntries, read_ledger
from ditk_ray.sweep.saved_job import SavedJob, load_job_of
from ditk_ray.sweep.trial_source import OpenTrial
from ditk_ray.tracking.folders import sweep_to_type
from ditk_ray.tracking.lock import is_running
from ditk_ray.tracking.record import (
    SweepRecord,
    SweepStatus,
    TrialRecord,
    TrialState,
    read_record,
    trial_from_dict,
)
from ditk_ray.tracking.trial_metrics import line_of_progress, own_metrics_of, read_metrics
from ditk_ray.trial.report_keys import ATTEMPT


@dataclass(frozen=True)
class EarlierSweep:
    """What a sweep goes on from."""

    folder: Path
    saved: SavedJob
    record: SweepRecord
    """With every trial that was made; those that are not over are pending."""
    unfinished: tuple[OpenTrial, ...]
    drawn: dict[str, dict[str, object]]
    """All that was drawn for each trial, by its name."""

    @property
    def made(self) -> int:
        """How many trials there are."""
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
    for trial in record.trials.values():
        if not trial.state.is_final:
            _recall_reports(record, trial)
    record.status, record.ended, record.why = SweepStatus.RUNNING, None, None
    unfinished = [
        OpenTrial(name, {**entries.drawn[name], **trial.params})
        for name, trial in record.trials.items()
        if not trial.state.is_final
    ]
    return EarlierSweep(folder, saved, record, tuple(unfinished), entries.drawn)


def _reopen_failed(folder: Path, entries: LedgerEntries) -> None:
    ledger = Ledger(folder)
    for name, row in list(entries.ended.items()):
        if row["state"] == TrialState.FAILED:
            ledger.reopened(name)
            del entries.ended[name]
    ledger.close()


def _trial(
    folder: Path,
    name: str,
    entries: LedgerEntries,
    known: TrialRecord | None,
    saved: SavedJob,
) -> TrialRecord:
    if name in entries.ended:
        return trial_from_dict(entries.ended[name], folder)
    params = known.params if known else saved.job.space.active(entries.drawn[name])
    trial = TrialRecord(name, params, dir=str(folder / name))
    if known is not None:
        trial.changes, trial.started = known.changes, known.started
        trial.failures, trial.priority = known.failures, known.priority
    return trial


def _recall_reports(record: SweepRecord, trial: TrialRecord) -> None:
    """Give a trial's record what the trial itself has written down of its evaluations."""
    for row in line_of_progress(read_metrics(Path(trial.dir))):
        trial.attempt = row.get(ATTEMPT, trial.attempt)
        record.add_report(trial, own_metrics_of(row))
