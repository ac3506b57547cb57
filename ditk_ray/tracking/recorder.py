"""The sweep's side of recording in MLflow: events go into the journal, and that is all.

A process of its own delivers them. Tune's event loop spends microseconds on an
event, whatever the store does, and a sweep whose process was killed is still
recorded to its last event.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ditk_ray.config.options import MLflowCheckpoints
from ditk_ray.record.journal import TRACKING_FOLDER, EventWriter, journal_path, read_events
from ditk_ray.record.record import SweepRecord, TrialRecord, finite
from ditk_ray.record.sweep_folder import sweep_to_type
from ditk_ray.record.trial_folder import PARAMS_HISTORY_FILE
from ditk_ray.tracking.recording import DeliveryState, read_state
from ditk_ray.util.plain import json_text

RECORDER_LOG = "recorder.log"
AWAY_SECONDS = 10.0
"""How long a sweep that is over waits for a store that does not answer."""

STALL_SECONDS = 600.0
"""How long it waits for one that neither fails nor gets on."""

RESTART_SECONDS = 60.0

_TELL_SECONDS = 5.0
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TrackingOptions:
    """Where and how a sweep is recorded."""

    uri: str
    experiment: str
    checkpoints: MLflowCheckpoints = "best"
    """Whose best checkpoints become artifacts."""
    trial_tags: Mapping[str, Any] = field(default_factory=dict)


class Recorder:
    """A listener that has a sweep recorded in MLflow.

    Made again on the folder of an earlier sweep, it continues the same runs.
    """

    def __init__(
        self, folder: Path, options: TrackingOptions, say: Callable[[str], None] = _log.warning
    ) -> None:
        self._folder = folder
        self._options = options
        self._say = say
        self._journal = EventWriter(journal_path(folder))
        self._process: subprocess.Popen[bytes] | None = None
        self._known: set[str] = {event["trial"] for event in read_events(folder, "trial")}
        self._changes = {e["trial"]: e["number"] for e in read_events(folder, "change")}
        self._told: Any = None
        self._failed: set[str] = set()
        self._last: dict[str, tuple[int, Mapping[str, Any]]] = {}
        self._was_away = False
        self._next_look = 0.0
        self._started_delivery = 0.0

    def started(self, record: SweepRecord) -> None:
        earlier = read_events(self._folder, "sweep")
        sweep_id = earlier[-1]["id"] if earlier else uuid.uuid4().hex
        about = {name: getattr(record, name) for name in ("name", "metric", "mode", "job")}
        where = {key: value for key, value in vars(self._options).items() if key != "trial_tags"}
        self._journal.append("sweep", id=sweep_id, folder=str(self._folder), **about, **where)
        self._process = _start_delivery(self._folder)
        self._started_delivery = time.monotonic()

    def reported(self, record: SweepRecord, trial: TrialRecord) -> None:
        self._introduce(trial)
        step = _step_of(trial)
        last_step, last = self._last.get(trial.id, (-1, {}))
        values = {
            key: value
            for key, value in trial.metrics.items()
            # A trial's last report repeats its last evaluation.
            if key != "training_iteration"
            and (step != last_step or not _is_same(last.get(key), value))
        }
        self._last[trial.id] = step, trial.metrics
        if values:
            self._journal.append("metrics", trial=trial.id, step=step, values=values)

    def changed(self, record: SweepRecord, trial: TrialRecord) -> None:
        self._introduce(trial)
        if len(trial.changes) > self._changes.get(trial.id, 0):
            self._note_change(trial)
        told = {name: getattr(trial, name) for name in ("attempt", "node", "error", "why")}
        if trial.id in self._failed and trial.error is None:
            told["error"] = ""  # it is tried again
        if trial.error:
            self._failed.add(trial.id)
        tags = {key: value for key, value in told.items() if value is not None}
        self._journal.append("state", trial=trial.id, state=trial.state, tags=tags)
        if trial.state.is_final:
            self._last.pop(trial.id, None)

    def refreshed(self, record: SweepRecord) -> None:
        """Write down how the sweep stands; say once when the store goes away or comes back."""
        self._tell_progress(record)
        if time.monotonic() < self._next_look:
            return
        self._next_look = time.monotonic() + _TELL_SECONDS
        self._keep_delivering()
        state = self._state()
        if bool(state.error) != self._was_away:
            self._was_away = bool(state.error)
            self._say(
                f"MLflow is not accepting records ({state.error}); the sweep continues, "
                "they are kept on disk and sent later"
                if state.error
                else "MLflow is accepting records again"
            )

    def ended(self, record: SweepRecord) -> None:
        self._tell_progress(record)
        unfinished = [trial.id for trial in record.trials.values() if not trial.state.is_final]
        known = [trial for trial in unfinished if trial in self._known]
        best = record.best()
        end = {"status": record.status, "best_trial": best.id if best else ""}
        self._journal.append("end", unfinished=known, **end)
        self._wait()
        if not self._journal.close():
            self._say("the disk is full: the last records could not be saved for MLflow")

    def _keep_delivering(self) -> None:
        now = time.monotonic()
        is_gone = self._process is not None and self._process.poll() is not None
        if is_gone and now - self._started_delivery > RESTART_SECONDS:
            self._started_delivery = now
            self._process = _start_delivery(self._folder)

    def _introduce(self, trial: TrialRecord) -> None:
        if trial.id not in self._known:
            self._known.add(trial.id)
            tags = {"trial": trial.id, "sweep": self._folder.name, **self._options.trial_tags}
            self._journal.append("trial", trial=trial.id, params=trial.params, tags=tags)

    def _note_change(self, trial: TrialRecord) -> None:
        number = self._changes[trial.id] = len(trial.changes)
        step, params = trial.changes[-1]["env_step"], trial.changes[-1]["params"]
        before = trial.changes[0]["params"] if number == 2 else None
        change = {"number": number, "step": step, "params": params, "before": before}
        self._journal.append("change", trial=trial.id, **change)
        history = Path(trial.dir) / PARAMS_HISTORY_FILE
        history.parent.mkdir(parents=True, exist_ok=True)
        history.write_text(json_text(trial.changes, indent=1))

    def _tell_progress(self, record: SweepRecord) -> None:
        best = record.best()
        told: dict[str, Any] = {
            "counts": dict(record.counts()),
            "best": None,
            "pareto": [trial.id for trial in record.pareto_set()],
        }
        if best is not None:
            # Also those parameters that the best trial does not have: an earlier one may.
            space = record.job.get("space", {}).items()
            params = {name: "-" for name, item in space if item["kind"] != "fixed"} | best.params
            score = {"metric": record.metric, "score": record.score(best)}
            told["best"] = {"trial": best.id, **score, "params": params}
        if told != self._told:
            self._told = told
            self._journal.append("progress", **told)

    def _state(self) -> DeliveryState:
        return read_state(self._folder, self._options.uri)

    def _wait(self) -> None:
        """Wait for the delivery; what a store that is away does not take stays in the journal."""
        if self._process is None:
            return
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._watch_delivery(self._process)
        except KeyboardInterrupt:
            self._say("interrupted")
        self._process.terminate()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._say_what_is_missing(self._state())

    def _say_what_is_missing(self, state: DeliveryState) -> None:
        log = self._folder / TRACKING_FOLDER / RECORDER_LOG
        sync = f"`ditk-ray sync {sweep_to_type(self._folder)}`"
        if state.offset < self._journal.size:
            why = f" ({state.error})" if state.error else ""
            self._say(
                f"not everything is in MLflow yet{why}; nothing is lost: {sync} sends the rest"
            )
        if state.files_missing:
            runs = f"{len(state.files_missing)} runs"
            self._say(f"MLflow did not accept the files of {runs}, see {log}; {sync} tries again")
        if state.refused:
            self._say(f"MLflow refused {state.refused} records, see {log}")

    def _watch_delivery(self, process: subprocess.Popen[bytes]) -> None:
        moved = told = time.monotonic()
        away, offset = None, -1
        while process.poll() is None:
            state, now = self._state(), time.monotonic()
            away = (away or now) if state.error else None
            if state.offset != offset:
                offset, moved = state.offset, now
            if (away and now - away > AWAY_SECONDS) or now - moved > STALL_SECONDS:
                return
            if now - told > _TELL_SECONDS:
                told = now
                share = state.offset / max(1, self._journal.size)
                self._say(f"recording in MLflow: {share:.0%} (Ctrl-C leaves the rest for later)")
            time.sleep(0.05)


def _is_same(one: Any, other: Any) -> bool:
    return bool(one == other) or (one != one and other != other)


def _step_of(trial: TrialRecord) -> int:
    step = finite(trial.metrics.get("env_step"))
    return trial.reports if step is None else int(step)


def _start_delivery(folder: Path) -> subprocess.Popen[bytes]:
    package = str(Path(__file__).resolve().parents[2])
    path = os.pathsep.join(filter(None, [package, os.environ.get("PYTHONPATH")]))
    with (folder / TRACKING_FOLDER / RECORDER_LOG).open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "ditk_ray.tracking.delivery_process", str(folder)],
            stdin=subprocess.PIPE,  # closed with this process, however it ends
            stdout=log,
            stderr=log,
            start_new_session=True,
            env=os.environ | {"PYTHONPATH": path},
        )
