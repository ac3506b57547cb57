"""Delivering a sweep's journal to MLflow: everything once, in order, sooner or later."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from mlflow.utils.validation import MAX_METRICS_PER_BATCH, MAX_PARAMS_TAGS_PER_BATCH

from ditk_ray.provenance.secrets import mask_text
from ditk_ray.provenance.snapshot import PROVENANCE_FOLDER
from ditk_ray.record.journal import TRACKING_FOLDER, Event, journal_path, read_chunk, read_events
from ditk_ray.record.record import RECORD_FILE
from ditk_ray.record.sweep_folder import BEST_CONFIG_FILE, REPORT_FILE
from ditk_ray.record.trial_folder import PARAMS_HISTORY_FILE, best_checkpoints
from ditk_ray.tracking.mlflow_store import (
    PARENT,
    RunStore,
    RunUpdate,
    UpdateCollector,
    is_refused,
    masked_line,
    params_of,
    tags_of,
)
from ditk_ray.tracking.recording import DeliveryState, read_state, resolved_uri, write_state
from ditk_ray.trial.reports import CONFIG_FILE, LOG_FILE, METRICS_FILE

_log = logging.getLogger(__name__)

FAILURES_OF_POISON = 5
"""How often the same update may fail while the store answers before it is left out."""

MAX_LOG_BYTES = 64 * 1024 * 1024
"""A log that is larger than any person reads stays where it is."""

_TEXTS_FOLDER = "files"

Artifacts = dict[Path, str | None]
"""Files that may exist, and the folder among a run's artifacts that each belongs into."""


class Delivery:
    """Brings one journal into one store; for one process at a time.

    `step` may be called again after it raised: what was not delivered is tried
    again, and what was is not duplicated. Files do not hold up the rest: those that
    could not be uploaded are tried again at the sweep's end and by `upload_missing`.
    """

    def __init__(self, folder: Path, uri: str) -> None:
        self.state = read_state(folder, uri)
        self._folder = folder
        self._journal = journal_path(folder)
        self._store: RunStore | None = None
        self._unsent: list[RunUpdate] = []
        self._unsent_end = self.state.offset
        self._is_in_doubt = False
        self._failures = 0
        self._is_poison = False
        self._sweep: Event = {}
        self._versions: dict[Path, tuple[int, int]] = {}
        self._ended_trials: set[str] = set()

    @property
    def pending(self) -> int:
        return self._journal.stat().st_size - self.state.offset if self._journal.is_file() else 0

    def step(self) -> bool:
        """Deliver the next part of the journal; say whether there was one.

        Raises what prevents that: an unreachable server, a full disk.
        """
        try:
            store = self._opened()
            if not self._unsent:
                events, end = read_chunk(self._journal, self.state.offset)
                if end == self.state.offset:
                    return False
                self._unsent, self._unsent_end = UpdateCollector().collect(events), end
            self._send(store)
        except Exception as error:
            self._is_in_doubt = True
            self._note_error(error)
            raise
        return True

    def upload_missing(self) -> None:
        """Try once more what could not be uploaded."""
        store, missing = self._opened(), list(self.state.files_missing)
        self.state.files_missing = []
        for trial in missing:
            if trial in self.state.runs:
                self._upload(store, trial, self._artifacts(trial))
        write_state(self._folder, self.state)

    def _send(self, store: RunStore) -> None:
        while self._unsent:
            self._apply(store, self._unsent[0])
            self._unsent.pop(0)
            self._failures, self._is_poison = 0, False
        self._is_in_doubt = False
        with self._journal.open("rb") as file:  # it is on the disk before the state says so
            os.fsync(file.fileno())
        self.state.offset = self._unsent_end
        self.state.error = None
        write_state(self._folder, self.state)

    def _opened(self) -> RunStore:
        if self._store is None:
            self._sweep = read_events(self._folder, "sweep")[-1]
            uri = resolved_uri(self.state.uri, self._folder)
            store = RunStore(uri, self._sweep["experiment"], self._folder)
            known = self.state.runs.get(PARENT)
            if known and not store.has(known):  # another store is there by now
                self.state = DeliveryState(self.state.uri)
                known = None
            # An earlier process may have made runs whose ids were not noted any more.
            self._is_in_doubt = bool(known or store.find(self._sweep["id"]))
            self.state.experiment_id = store.experiment_id
            self._store = store
        return self._store

    def _apply(self, store: RunStore, update: RunUpdate) -> None:
        is_new = update.trial not in self.state.runs
        self._unless_refused(update, self._make_run, store, update)
        run = self.state.runs.get(update.trial)
        if run is None:
            return
        self._log(store, update, run, "tags", tags_of(update.tags))
        self._log(store, update, run, "metrics", update.metrics)
        for name, text in update.texts.items():  # artifacts that are not files of the sweep's
            folder = self._texts_folder(update.trial)
            folder.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)
            self._upload(store, update.trial, {folder / name: None})
        if update.status == "RUNNING" and not is_new:
            self._unless_refused(update, store.client.update_run, run, "RUNNING")
        elif update.status not in (None, "RUNNING"):
            self._upload(store, update.trial, self._artifacts(update.trial))
            end = store.client.set_terminated
            self._unless_refused(update, end, run, update.status, update.ended)
            if update.trial == PARENT:
                self._complete_children(store, update)

    def _make_run(self, store: RunStore, update: RunUpdate) -> None:
        known = self.state.runs
        if update.trial in known:
            return
        key = f"{self._sweep['id']}/{update.trial}".rstrip("/")
        run = store.find(key) if self._is_in_doubt else None
        name = update.trial or self._sweep["name"]
        run = run or store.create(key, name, update.time, known.get(PARENT, ""))
        self._log(store, update, run, "params", params_of(update.params))
        known[update.trial] = run

    def _log(
        self, store: RunStore, update: RunUpdate, run: str, kind: str, items: Sequence[Any]
    ) -> None:
        size = MAX_METRICS_PER_BATCH if kind == "metrics" else MAX_PARAMS_TAGS_PER_BATCH
        left = iter(items)
        while batch := list(islice(left, size)):
            try:
                store.client.log_batch(run, **{kind: batch})
            except Exception as error:
                if not self._gives_up(error):
                    raise
                for item in batch:
                    one = partial(store.client.log_batch, **{kind: [item]})
                    self._unless_refused(update, one, run)

    def _texts_folder(self, trial: str) -> Path:
        return self._folder / TRACKING_FOLDER / _TEXTS_FOLDER / (trial or "sweep")

    def _artifacts(self, trial: str) -> Artifacts:
        kept: Artifacts = dict.fromkeys(sorted(self._texts_folder(trial).glob("*")))
        if trial == PARENT:
            return kept | sweep_artifacts(self._folder)
        self._ended_trials.add(trial)
        kept |= trial_artifacts(self._folder / trial)
        if self._sweep["checkpoints"] == "all":
            kept |= checkpoint_artifacts(self._folder / trial)
        return kept

    def _complete_children(self, store: RunStore, update: RunUpdate) -> None:
        missing, self.state.files_missing = self.state.files_missing, []
        for trial in sorted({*self._ended_trials, *missing} & set(self.state.runs)):
            self._upload(store, trial, self._artifacts(trial))
        best = update.best_trial
        if best in self.state.runs and self._sweep["checkpoints"] == "best":
            self._upload(store, best, checkpoint_artifacts(self._folder / best))

    def _upload(self, store: RunStore, trial: str, artifacts: Artifacts) -> None:
        for file, place in artifacts.items():
            # A link may lead anywhere, and a trial runs code that is not ours.
            if file.is_symlink() or not file.is_file():
                continue
            try:
                found = file.stat()
                version = (found.st_size, found.st_mtime_ns)
                if self._versions.get(file) != version:
                    store.client.log_artifact(self.state.runs[trial], str(file), place)
                    self._versions[file] = version
            except Exception as error:
                text = mask_text(f"{type(error).__name__}: {error}")
                _log.warning("%s was not uploaded: %s", file, text)
                if trial not in self.state.files_missing:
                    self.state.files_missing.append(trial)

    def _unless_refused(self, update: RunUpdate, call: Callable[..., None], *given: Any) -> None:
        """Make a call; what MLflow will never take is noted and left out."""
        try:
            call(*given)
        except Exception as error:
            if not self._gives_up(error):
                raise
            self.state.refused += 1
            _log.warning("refused for %s: %s", update.trial or "the sweep", error)

    def _gives_up(self, error: Exception) -> bool:
        if is_refused(error):
            return True
        if self._is_poison and self._store is not None and PARENT in self.state.runs:
            self._store.has(self.state.runs[PARENT])
            return True
        return False

    def _note_error(self, error: Exception) -> None:
        self._failures += 1
        self._is_poison = self._failures >= FAILURES_OF_POISON
        _log.info("not delivered yet: %s: %s", type(error).__name__, mask_text(str(error)))
        self.state.error = f"{type(error).__name__}: {masked_line(error)}"
        try:
            write_state(self._folder, self.state)
        except OSError as problem:
            _log.warning("the state cannot be written: %s", problem)


def sweep_artifacts(folder: Path) -> Artifacts:
    files: Artifacts = dict.fromkeys(
        folder / name for name in (RECORD_FILE, BEST_CONFIG_FILE, REPORT_FILE)
    )
    return files | dict.fromkeys(sorted((folder / PROVENANCE_FOLDER).glob("*")), PROVENANCE_FOLDER)


def trial_artifacts(folder: Path) -> Artifacts:
    """Return what a child run keeps of its trial: as little as is needed to understand it."""
    files = [folder / name for name in (CONFIG_FILE, METRICS_FILE, PARAMS_HISTORY_FILE)]
    kept: Artifacts = dict.fromkeys([*files, *sorted(folder.glob("result*"))])
    logs = [log for log in sorted(folder.glob(f"attempt_*/**/{LOG_FILE}")) if log.is_file()]
    small = [log for log in logs if log.stat().st_size <= MAX_LOG_BYTES]
    return kept | {log: str(log.parent.relative_to(folder)) for log in small}


def checkpoint_artifacts(folder: Path) -> Artifacts:
    """Return the checkpoint of a trial's best evaluation, for each seed."""
    found = best_checkpoints(folder).items()
    return {file: f"checkpoint/{seed}" if seed else "checkpoint" for seed, file in found}
