"""A sweep as an earlier process left it: what is done, and where to go on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ray.tune.search.sample import Categorical

from ditk_ray.config.jsonable import jsonable
from ditk_ray.config.space import SearchSpace, is_grid
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
    reopened: frozenset[str] = frozenset()
    """The unfinished trials that have failed before and are run again."""
    ended_by: str | None = None
    """The rule about the sweep by which it has finished, if one ended it."""

    @property
    def held(self) -> tuple[str, ...]:
        """The unfinished trials that a person has paused."""
        return tuple(one.name for one in self.unfinished if self.record.trials[one.name].is_held)

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
    ended_by = record.why if record.status is SweepStatus.FINISHED else None
    record.status, record.ended, record.why = SweepStatus.RUNNING, None, None
    unfinished = [
        OpenTrial(name, {**entries.drawn[name], **trial.params})
        for name, trial in record.trials.items()
        if not trial.state.is_final
    ]
    reopened = frozenset(entries.reopened)
    return EarlierSweep(folder, saved, record, tuple(unfinished), entries.drawn, reopened, ended_by)


def _reopen_failed(folder: Path, entries: LedgerEntries) -> None:
    ledger = Ledger(folder)
    for name, row in list(entries.ended.items()):
        if row["state"] == TrialState.FAILED:
            ledger.reopened(name)
            entries.reopen(name)
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
    params = _params(saved.job.space, entries.drawn[name], known)
    trial = TrialRecord(name, params, dir=str(folder / name))
    if known is not None:
        trial.changes, trial.started = known.changes, known.started
        trial.failures, trial.priority = known.failures, known.priority
        trial.is_held = known.is_held
    return trial


def _params(space: SearchSpace, drawn: dict[str, Any], known: TrialRecord | None) -> dict[str, Any]:
    """Return a trial's parameters as they were drawn, but for what a scheduler has changed.

    The record has been JSON, which knows no tuples and no infinity.
    """
    if known is None or not known.changes:
        return space.active(drawn)
    domains = {item.name: item.domain for item in space.parameters}
    return {
        name: _as_before_json(value, [drawn.get(name), *_choices(domains.get(name))])
        for name, value in known.params.items()
    }


def _as_before_json(value: Any, possible: Sequence[Any]) -> Any:
    return next((one for one in possible if jsonable(one) == value), value)


def _choices(domain: Any) -> Sequence[Any]:
    if is_grid(domain):
        return list(domain["grid_search"])
    return domain.categories if isinstance(domain, Categorical) else ()


def _recall_reports(record: SweepRecord, trial: TrialRecord) -> None:
    """Give a trial's record what the trial itself has written down of its evaluations."""
    for row in line_of_progress(read_metrics(Path(trial.dir))):
        trial.attempt = row.get(ATTEMPT, trial.attempt)
        record.add_report(trial, own_metrics_of(row))
