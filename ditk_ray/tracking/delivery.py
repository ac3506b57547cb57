"""Delivering a sweep's journal to MLflow: everything once, in order, sooner or later."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from ditk_ray.provenance.masking import mask_text
from ditk_ray.tracking.artifacts import (
    Artifact,
    best_checkpoints,
    sweep_artifacts,
    trial_artifacts,
)
from ditk_ray.tracking.delivery_state import DeliveryState, read_state, state_path, write_state
from ditk_ray.tracking.journal import Event, journal_path, read_chunk, read_events
from ditk_ray.tracking.run_store import RunStore, is_refused
from ditk_ray.tracking.store import resolved_uri
from ditk_ray.tracking.updates import PARENT, RunUpdate, UpdateCollector

_log = logging.getLogger(__name__)


class Delivery:
    """Brings one journal into one store; for one process at a time.

    `step` may be called again after it raised: what was not delivered is tried
    again, and what was is not doubled.
    """

    def __init__(self, folder: Path, uri: str) -> None:
        self.state = read_state(folder, uri)
        self._folder = folder
        self._journal = journal_path(folder)
        self._store: RunStore | None = None
        self._unsent: list[RunUpdate] = []
        self._unsent_end = self.state.offset
        # An earlier process may have made a run whose id it did not note any more.
        self._is_in_doubt = state_path(folder, uri).exists()
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

    def _send(self, store: RunStore) -> None:
        while self._unsent:
            self._apply(store, self._unsent[0])
            self._unsent.pop(0)
        self._is_in_doubt = False
        self.state.offset = self._unsent_end
        self.state.error = None
        write_state(self._folder, self.state)

    def _opened(self) -> RunStore:
        if self._store is None:
            sweeps = read_events(self._folder, "sweep")
            self._sweep = sweeps[-1]
            uri = resolved_uri(self.state.uri, self._folder)
            store = RunStore(uri, self._sweep["experiment"], self._folder)
            known = self.state.runs.get(PARENT)
            if known and not store.has(known):  # another store is there by now
                self.state = DeliveryState(self.state.uri)
            self.state.experiment_id = store.experiment_id
            self._store = store
            write_state(self._folder, self.state)  # from here on there is something to doubt
        return self._store

    def _apply(self, store: RunStore, update: RunUpdate) -> None:
        is_new = update.trial not in self.state.runs
        self._unless_refused(update, self._make_run, store, update)
        run = self.state.runs.get(update.trial)
        if run is None:
            return
        self._unless_refused(update, store.log, run, update.metrics, tags=update.tags)
        for name, text in update.texts.items():
            self._unless_refused(update, store.upload_text, run, text, name)
        if update.status == "RUNNING" and not is_new:
            self._unless_refused(update, store.reopen, run)
        elif update.status not in (None, "RUNNING"):
            self._unless_refused(update, self._upload, store, run, self._artifacts(update.trial))
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
        self._unless_refused(update, store.log, run, params=update.params)
        known[update.trial] = run

    def _artifacts(self, trial: str) -> Iterable[Artifact]:
        if trial == PARENT:
            return sweep_artifacts(self._folder)
        self._ended_trials.add(trial)
        kept = list(trial_artifacts(self._folder / trial))
        if self._sweep["checkpoints"] == "all":
            kept += best_checkpoints(self._folder / trial)
        return kept

    def _complete_children(self, store: RunStore, update: RunUpdate) -> None:
        """Upload what has grown since its trial ended, and the best trial's checkpoint."""
        for trial in sorted(self._ended_trials):
            files = self._artifacts(trial)
            self._unless_refused(update, self._upload, store, self.state.runs[trial], files)
        best = update.best_trial
        if best in self.state.runs and self._sweep["checkpoints"] == "best":
            files = list(best_checkpoints(self._folder / best))
            self._unless_refused(update, self._upload, store, self.state.runs[best], files)

    def _upload(self, store: RunStore, run: str, artifacts: Iterable[Artifact]) -> None:
        for artifact in artifacts:
            version = artifact.version
            if self._versions.get(artifact.file) != version:
                store.upload(run, artifact.file, artifact.place)
                self._versions[artifact.file] = version

    def _unless_refused(
        self, update: RunUpdate, call: Callable[..., None], *given: Any, **named: Any
    ) -> None:
        """Make a call; what MLflow will never take is noted and left out."""
        try:
            call(*given, **named)
        except Exception as error:
            if not is_refused(error):
                raise
            self.state.refused += 1
            _log.warning("refused for %s: %s", update.trial or "the sweep", error)

    def _note_error(self, error: Exception) -> None:
        _log.info("not delivered yet: %s: %s", type(error).__name__, error)
        first_line = str(error).strip().partition("\n")[0]
        self.state.error = mask_text(f"{type(error).__name__}: {first_line}")
        try:
            write_state(self._folder, self.state)
        except OSError as problem:
            _log.warning("the state cannot be written: %s", problem)
