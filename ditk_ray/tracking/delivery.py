"""Delivering a sweep's journal to MLflow: everything once, in order, sooner or later."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from mlflow.utils.validation import MAX_METRICS_PER_BATCH, MAX_PARAMS_TAGS_PER_BATCH

from ditk_ray.provenance.masking import mask_text
from ditk_ray.tracking.artifacts import (
    Artifact,
    best_checkpoints,
    sweep_artifacts,
    trial_artifacts,
)
from ditk_ray.tracking.delivery_state import DeliveryState, read_state, write_state
from ditk_ray.tracking.event_log import Event, read_chunk
from ditk_ray.tracking.journal import TRACKING_FOLDER, journal_path, read_events
from ditk_ray.tracking.run_store import RunStore, is_refused, params_of, tags_of
from ditk_ray.tracking.store import resolved_uri
from ditk_ray.tracking.updates import PARENT, RunUpdate, UpdateCollector

_log = logging.getLogger(__name__)

FAILURES_OF_POISON = 5
"""So often the same update may fail while the store answers; then it is no passing trouble."""

_TEXTS_FOLDER = "files"


class Delivery:
    """Brings one journal into one store; for one process at a time.

    `step` may be called again after it raised: what was not delivered is tried
    again, and what was is not doubled. Files do not hold up the rest: those that
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
        """How many bytes of the journal wait."""
        return self._journal.stat().st_size - self.state.offset if self._journal.is_file() else 0

    def step(self) -> bool:
        """Deliver the next part of the journal; say whether there was one.

        Raises whatever keeps it from that: a server that is away, a full disk.
        """
        try:
            store = self._opened()
            if not self._unsent:
                chunk = read_chunk(self._journal, self.state.offset)
                if chunk.end == self.state.offset:
                    return False
                self._unsent = UpdateCollector().collect(chunk.events)
                self._unsent_end = chunk.end
            self._send(store)
        except Exception as error:
            self._is_in_doubt = True
            self._note_error(error)
            raise
        return True

    def upload_missing(self) -> bool:
        """Try once more what could not be uploaded; say whether all of it is there now."""
        store, missing = self._opened(), list(self.state.files_missing)
        self.state.files_missing = []
        for trial in missing:
            if trial in self.state.runs:
                self._upload(store, trial, self._artifacts(trial))
        write_state(self._folder, self.state)
        return not self.state.files_missing

    def _send(self, store: RunStore) -> None:
        while self._unsent:
            self._apply(store, self._unsent[0])
            self._unsent.pop(0)
            self._failures, self._is_poison = 0, False
        self._is_in_doubt = False
        self._sync_journal()
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
        tags = tags_of(update.tags)
        self._log(update, store.log_tags, run, tags, MAX_PARAMS_TAGS_PER_BATCH)
        self._log(update, store.log_metrics, run, update.metrics, MAX_METRICS_PER_BATCH)
        if update.texts:
            self._keep_texts(update)
            self._upload(store, update.trial, self._texts_of(update.trial))
        if update.status == "RUNNING" and not is_new:
            self._unless_refused(update, store.reopen, run)
        elif update.status not in (None, "RUNNING"):
            self._upload(store, update.trial, self._artifacts(update.trial))
            self._unless_refused(update, store.end, run, update.status, update.ended)
            if update.trial == PARENT:
                self._complete_children(store, update)

    def _make_run(self, store: RunStore, update: RunUpdate) -> None:
        """Make the update's run when it is needed first, or find it again."""
        known = self.state.runs
        if update.trial in known:
            return
        key = f"{self._sweep['id']}/{update.trial}".rstrip("/")
        run = store.find(key) if self._is_in_doubt else None
        name = update.trial or self._sweep["name"]
        run = run or store.create(key, name, update.time, known.get(PARENT, ""))
        params = params_of(update.params)
        self._log(update, store.log_params, run, params, MAX_PARAMS_TAGS_PER_BATCH)
        known[update.trial] = run

    def _log(
        self,
        update: RunUpdate,
        log: Callable[[str, Sequence[Any]], None],
        run: str,
        items: Sequence[Any],
        size: int,
    ) -> None:
        """Log any number of items; of a batch that is refused, all but the culprit."""
        left = iter(items)
        while batch := list(islice(left, size)):
            try:
                log(run, batch)
            except Exception as error:
                if not self._gives_up(error):
                    raise
                for item in batch:
                    self._unless_refused(update, log, run, [item])

    def _keep_texts(self, update: RunUpdate) -> None:
        """Write what becomes an artifact without being a file of the sweep's."""
        for name, text in update.texts.items():
            folder = self._texts_folder(update.trial)
            folder.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)

    def _texts_folder(self, trial: str) -> Path:
        return self._folder / TRACKING_FOLDER / _TEXTS_FOLDER / (trial or "sweep")

    def _texts_of(self, trial: str) -> list[Artifact]:
        return [Artifact(file) for file in sorted(self._texts_folder(trial).glob("*"))]

    def _artifacts(self, trial: str) -> list[Artifact]:
        kept = self._texts_of(trial)
        if trial == PARENT:
            return [*kept, *sweep_artifacts(self._folder)]
        self._ended_trials.add(trial)
        kept += trial_artifacts(self._folder / trial)
        if self._sweep["checkpoints"] == "all":
            kept += best_checkpoints(self._folder / trial)
        return kept

    def _complete_children(self, store: RunStore, update: RunUpdate) -> None:
        """Upload what has grown or was missed since its trial ended, and the best checkpoint."""
        missing, self.state.files_missing = self.state.files_missing, []
        for trial in sorted({*self._ended_trials, *missing} & set(self.state.runs)):
            self._upload(store, trial, self._artifacts(trial))
        if update.best_trial in self.state.runs and self._sweep["checkpoints"] == "best":
            best = update.best_trial
            self._upload(store, best, list(best_checkpoints(self._folder / best)))

    def _upload(self, store: RunStore, trial: str, artifacts: Sequence[Artifact]) -> None:
        """Upload files; one that cannot be is noted, and holds up nothing."""
        for artifact in artifacts:
            try:
                version = artifact.version
                if self._versions.get(artifact.file) != version:
                    store.upload(self.state.runs[trial], artifact.file, artifact.place)
                    self._versions[artifact.file] = version
            except Exception as error:
                text = mask_text(f"{type(error).__name__}: {error}")
                _log.warning("%s was not uploaded: %s", artifact.file, text)
                if trial not in self.state.files_missing:
                    self.state.files_missing.append(trial)

    def _unless_refused(
        self, update: RunUpdate, call: Callable[..., None], *given: Any, **named: Any
    ) -> None:
        """Make a call; what MLflow will never take is noted and left out."""
        try:
            call(*given, **named)
        except Exception as error:
            if not self._gives_up(error):
                raise
            self.state.refused += 1
            _log.warning("refused for %s: %s", update.trial or "the sweep", error)

    def _gives_up(self, error: Exception) -> bool:
        """Say whether there is no use in trying again; raises if the store is just away."""
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
        first_line = str(error).strip().partition("\n")[0]
        self.state.error = mask_text(f"{type(error).__name__}: {first_line}")
        try:
            write_state(self._folder, self.state)
        except OSError as problem:
            _log.warning("the state cannot be written: %s", problem)

    def _sync_journal(self) -> None:
        """Have what was delivered on the disk, before the state says that it was."""
        file = os.open(self._journal, os.O_RDONLY)
        try:
            os.fsync(file)
        finally:
            os.close(file)
