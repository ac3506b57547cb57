"""The runs of an MLflow experiment as TensorBoard event files.

A run is a folder with one event file, below its parent's folder if it has one. The
file is written under another name and gets its own when it is whole, so TensorBoard
never sees a part; a run that is written anew replaces it, so no point is doubled. A
marker beside it tells what was written: a run that has ended, and is on the server
as it was then, is not downloaded again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path, PurePath
from typing import Any

from mlflow import MlflowClient
from mlflow.entities import Metric, Run
from mlflow.utils.mlflow_tags import MLFLOW_PARENT_RUN_ID

from ditk_ray.config.jsonable import json_text
from ditk_ray.config.whole_file import write_whole
from ditk_ray.errors import DitkRayError
from ditk_ray.tracking.lock import HeldError, held
from ditk_ray.tracking.mlflow_source import (
    all_runs,
    find_experiment,
    first_line,
    histories,
    open_store,
    require_store,
)

MARKER_FILE = "mlflow_run.json"
LOCK_FILE = ".mlflow_export.lock"
_PARTIAL_FILE = ".partial"  # TensorBoard reads whatever has `tfevents` in its name
_EVENT_FILE = "events.out.tfevents."
_NAME_LENGTH = 60
_ENDED = ("FINISHED", "FAILED", "KILLED")


class Outcome(StrEnum):
    """What became of a run."""

    WRITTEN = "written"
    KEPT = "kept"
    FAILED = "failed"


@dataclass(frozen=True)
class RunExport:
    """A run that was dealt with."""

    run_id: str
    name: str
    folder: Path
    outcome: Outcome
    points: int = 0
    error: str = ""


class _StoppedError(Exception):
    """The export ends before this run was read whole."""


class TensorboardExport:
    """An experiment that is there and has runs, about to be written to a folder.

    Raises what `open_store` and `find_experiment` raise, and `DitkRayError` if
    there is nothing to export.
    """

    def __init__(self, uri: str, experiment_name: str, target: Path) -> None:
        self._uri = uri
        self._target = target
        self._client: MlflowClient = open_store(uri)
        self._runs = all_runs(self._client, find_experiment(self._client, experiment_name))
        if not self._runs:
            raise DitkRayError(f"experiment {experiment_name!r} has no runs: nothing to export")
        self._stop = threading.Event()

    def __len__(self) -> int:
        """Return how many runs there are."""
        return len(self._runs)

    def run(self, workers: int, tell: Callable[[RunExport], None]) -> None:
        """Export all runs, several at once, and `tell` of each when it is dealt with.

        A run that fails does not keep the others back. Raises `StoreUnreachableError`
        as soon as the server is gone, and `DitkRayError` if another export writes to
        the same folder. Whatever ends it, what is complete stays.
        """
        self._target.mkdir(parents=True, exist_ok=True)
        try:
            with held(self._target / LOCK_FILE):
                self._export_all(workers, tell)
        except HeldError as error:
            raise DitkRayError(f"another export is writing to {self._target}") from error

    def _export_all(self, workers: int, tell: Callable[[RunExport], None]) -> None:
        with ThreadPoolExecutor(workers) as pool:
            folders = run_folders(self._runs)
            remove_strays(self._target, folders)
            jobs = [
                pool.submit(self._export, run, self._target / folders[run.info.run_id])
                for run in self._runs
            ]
            try:
                for job in as_completed(jobs):
                    result = job.result()
                    tell(result)
                    if result.outcome is Outcome.FAILED:
                        require_store(self._uri)
            finally:
                self._stop.set()
                pool.shutdown(wait=False, cancel_futures=True)

    def _export(self, run: Run, folder: Path) -> RunExport:
        def result(outcome: Outcome, points: int = 0, error: str = "") -> RunExport:
            name = run.info.run_name or run.info.run_id
            return RunExport(run.info.run_id, name, folder, outcome, points, error)

        try:
            marker = _read_marker(run, folder)
            if marker is not None:
                return result(Outcome.KEPT, marker["points"])
            return result(Outcome.WRITTEN, self._write(run, folder))
        except Exception as error:  # of one run alone, and MLflow's are of many kinds
            return result(Outcome.FAILED, error=first_line(error))

    def _write(self, run: Run, folder: Path) -> int:
        # Here, because tensorboardX imports torch where that is installed: seconds.
        from ditk_ray.tracking.event_file import write_event_file

        folder.mkdir(parents=True, exist_ok=True)
        partial = folder / _PARTIAL_FILE
        try:
            points = write_event_file(partial, run, self._histories(run))
            size = partial.stat().st_size
            partial.replace(folder / _event_file(run.info.run_id))
        finally:
            partial.unlink(missing_ok=True)
        marker = {**_signature(run), "points": points, "bytes": size}
        write_whole(folder / MARKER_FILE, json_text(marker, indent=1))
        return points

    def _histories(self, run: Run) -> Iterator[list[Metric]]:
        for history in histories(self._client, run):
            if self._stop.is_set():
                raise _StoppedError("stopped")
            yield history


def run_folders(runs: Sequence[Run]) -> dict[str, PurePath]:
    """Return a folder for each run, by its id: its name and the start of its id.

    A run stands below its parent if that is among the runs.
    """
    by_id = {run.info.run_id: run for run in runs}
    names = {run.info.run_id: _folder_name(run, 8) for run in runs}
    count = Counter(names.values())
    names |= {i: _folder_name(by_id[i], len(i)) for i, name in names.items() if count[name] > 1}

    def path(run_id: str) -> PurePath:
        chain = [run_id]
        parent = by_id[run_id].data.tags.get(MLFLOW_PARENT_RUN_ID)
        while parent in by_id and parent not in chain:
            chain.append(parent)
            parent = by_id[parent].data.tags.get(MLFLOW_PARENT_RUN_ID)
        return PurePath(*(names[item] for item in reversed(chain)))

    return {run_id: path(run_id) for run_id in by_id}


def remove_strays(target: Path, folders: dict[str, PurePath]) -> None:
    """Remove event files of runs that have another folder by now: renamed ones."""
    found = target.rglob(f"{_EVENT_FILE}*")
    for path in sorted(found, key=lambda path: len(path.parts), reverse=True):  # children first
        run_id = path.name.removeprefix(_EVENT_FILE)
        if run_id in folders and path.parent != target / folders[run_id]:
            path.unlink()
            path.with_name(MARKER_FILE).unlink(missing_ok=True)
            with contextlib.suppress(OSError):  # its children may be there
                path.parent.rmdir()


def _folder_name(run: Run, id_length: int) -> str:
    name = re.sub(r"[^\w.=,+-]+", "_", run.info.run_name or "").strip("._")[:_NAME_LENGTH]
    return f"{name or 'run'}_{run.info.run_id[:id_length]}"


def _event_file(run_id: str) -> str:
    return f"{_EVENT_FILE}{run_id}"


def _signature(run: Run) -> dict[str, Any]:
    """Return what tells whether a run has changed since; its last metrics are in it."""
    last = [(m.key, m.value, m.step, m.timestamp) for m in run.data.to_proto().metrics]
    values = [sorted(last), sorted(run.data.params.items()), sorted(run.data.tags.items())]
    return {
        "run_id": run.info.run_id,
        "status": run.info.status,
        "end_time": run.info.end_time,
        "digest": hashlib.sha256(repr(values).encode()).hexdigest(),
    }


def _read_marker(run: Run, folder: Path) -> dict[str, Any] | None:
    """Return the marker of a run that is complete and need not be written anew."""
    try:
        marker = json.loads((folder / MARKER_FILE).read_text(encoding="utf-8"))
        size = (folder / _event_file(run.info.run_id)).stat().st_size
        expected = {**_signature(run), "points": marker["points"], "bytes": size}
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return marker if run.info.status in _ENDED and marker == expected else None
