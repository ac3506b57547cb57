"""The runs of an MLflow experiment as TensorBoard event files.

A run is a folder with one event file, below its parent's folder if it has one. The file
is written under another name and gets its own when it is whole, so TensorBoard never sees
a part, and no point is doubled. Its name has a digest of the run: one that has ended, and is
on the server as it was then, is not downloaded again.

Metrics are scalars with MLflow's steps and times, under MLflow's names, in TensorBoard's
32-bit floats. Parameters and tags are tables of text; the parameters are hyperparameters as
well, to be compared.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import re
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from itertools import chain
from pathlib import Path, PurePath
from typing import Literal

from google.protobuf.json_format import ParseDict  # type: ignore[import-untyped]
from mlflow.entities import Run
from mlflow.utils.mlflow_tags import MLFLOW_PARENT_RUN_ID
from tensorboardX.proto.event_pb2 import Event
from tensorboardX.proto.plugin_hparams_pb2 import HParamsPluginData
from tensorboardX.proto.summary_pb2 import Summary, SummaryMetadata
from tensorboardX.record_writer import RecordWriter
from tensorboardX.summary import text

from ditk_ray.errors import DitkRayError
from ditk_ray.tracking.mlflow_store import StoredExperiment, masked_line
from ditk_ray.util.locks import HeldError, held

LOCK_FILE = ".mlflow_export.lock"
_PARTIAL_FILE = ".partial"  # TensorBoard reads whatever has `tfevents` in its name
_EVENT_FILE = "events.out.tfevents."
_NAME_LENGTH = 60
_ID_LENGTH = 8
_ENDED = ("FINISHED", "FAILED", "KILLED")


@dataclass(frozen=True)
class RunExport:
    """A run that was dealt with; one that was complete already is kept."""

    run_id: str
    name: str
    folder: Path
    outcome: Literal["written", "kept", "failed"]
    points: int = 0
    error: str = ""


def export_experiment(
    experiment: StoredExperiment, target: Path, workers: int, report: Callable[[RunExport], None]
) -> None:
    """Export all runs, several at once, and `report` each when it is dealt with.

    A run that fails does not keep the others back. Raises `StoreUnreachableError` as soon
    as the server is gone, and `DitkRayError` if another export writes to the same folder.
    Whatever ends it, what is complete stays.
    """
    target.mkdir(parents=True, exist_ok=True)
    try:
        with held(target / LOCK_FILE):
            _Export(experiment, target).run(workers, report)
    except HeldError as error:
        raise DitkRayError(f"another export is writing to {target}") from error


class _Export:
    def __init__(self, experiment: StoredExperiment, target: Path) -> None:
        self._experiment = experiment
        self._folders = {
            run_id: target / folder for run_id, folder in run_folders(experiment.runs).items()
        }
        self._earlier: dict[str, list[Path]] = defaultdict(list)
        for path in target.rglob(f"{_EVENT_FILE}*"):
            self._earlier[path.name.removeprefix(_EVENT_FILE).partition(".")[0]].append(path)
        self._stop = threading.Event()

    def run(self, workers: int, report: Callable[[RunExport], None]) -> None:
        with ThreadPoolExecutor(workers) as pool:
            jobs = [pool.submit(self._export, run) for run in self._experiment.runs]
            try:
                for job in as_completed(jobs):
                    result = job.result()
                    report(result)
                    if result.outcome == "failed":
                        self._experiment.require_store()
            finally:
                self._stop.set()
                pool.shutdown(wait=False, cancel_futures=True)

    def _export(self, run: Run) -> RunExport:
        run_id = run.info.run_id
        folder, name = self._folders[run_id], run.info.run_name or run_id
        try:
            if run.info.status in _ENDED:
                for file in folder.glob(f"{_event_file(run)}*"):
                    if file.stat().st_size:  # a power loss may have emptied it
                        return RunExport(run_id, name, folder, "kept", int(file.suffix[1:]))
            return RunExport(run_id, name, folder, "written", self._write(run, folder))
        except Exception as error:  # of one run alone, and MLflow's are of many kinds
            return RunExport(run_id, name, folder, "failed", error=masked_line(error))

    def _write(self, run: Run, folder: Path) -> int:
        folder.mkdir(parents=True, exist_ok=True)
        partial = folder / _PARTIAL_FILE
        about = list(_about(run))
        points = -len(about)
        try:
            with contextlib.closing(RecordWriter(str(partial))) as writer:
                for event in chain(about, self._scalars(run)):
                    writer.write(event.SerializeToString())
                    points += 1
                writer.flush()  # onto the disk, before it has its name
            self._remove_earlier(run)
            partial.replace(folder / f"{_event_file(run)}.{points}")
        finally:
            partial.unlink(missing_ok=True)
        return points

    def _scalars(self, run: Run) -> Iterator[Event]:
        for metric in sorted(run.data.metrics):
            for point in self._experiment.history(run, metric):
                value = Summary.Value(tag=point.key, simple_value=point.value)
                yield _event(point.timestamp, Summary(value=[value]), point.step)
            if self._stop.is_set():
                raise CancelledError

    def _remove_earlier(self, run: Run) -> None:
        for path in self._earlier[run.info.run_id]:
            path.unlink(missing_ok=True)
            with contextlib.suppress(OSError):  # up to the first folder that has something else
                for folder in path.parents:
                    folder.rmdir()


def run_folders(runs: Sequence[Run]) -> dict[str, PurePath]:
    """Return a folder for each run, by its id: its name and the start of its id.

    A run stands below its parent if that is among the runs.
    """
    names: dict[str, str] = {}
    parents: dict[str, str] = {}
    for run in runs:
        run_id = run.info.run_id
        name = re.sub(r"[^\w.=,+-]+", "_", run.info.run_name or "").strip("._")[:_NAME_LENGTH]
        names[run_id] = f"{name or 'run'}_{run_id[:_ID_LENGTH]}"
        parents[run_id] = run.data.tags.get(MLFLOW_PARENT_RUN_ID, "")
    folders = {}
    for run_id in names:
        path: list[str] = []
        above = run_id
        while above in names and above not in path:
            path.insert(0, above)
            above = parents[above]
        folders[run_id] = PurePath(*(names[item] for item in path))
    return folders


def _event_file(run: Run) -> str:
    """Return how the file's name begins: the run, and a digest of it as it was read.

    The number of its points follows.
    """
    last = [(m.key, m.value, m.step, m.timestamp) for m in run.data.to_proto().metrics]
    data = [sorted(last), sorted(run.data.params.items()), sorted(run.data.tags.items())]
    seen = repr([run.info.status, run.info.end_time, data]).encode()
    return f"{_EVENT_FILE}{run.info.run_id}.{hashlib.sha256(seen).hexdigest()[:16]}"


def _event(time: int | None, summary: Summary, step: int = 0) -> Event:
    return Event(wall_time=(time or 0) / 1000, step=step, summary=summary)


def _about(run: Run) -> Iterator[Event]:
    began = run.info.start_time
    yield Event(wall_time=(began or 0) / 1000, file_version="brain.Event:2")
    for name, rows in {"params": run.data.params, "tags": run.data.tags}.items():
        if rows:
            yield _event(began, text(name, _table(rows)))
    if run.data.params:
        yield _event(began, _hparams(run))


def _hparams(run: Run) -> Summary:
    """Return what makes the run a line in TensorBoard's comparison of hyperparameters.

    The description of the whole experiment is left out on purpose: TensorBoard takes the
    first one it finds, and without any it makes the union of all runs' parameters itself.
    """
    params = {name: _parsed(value) for name, value in run.data.params.items()}
    start = {"hparams": params, "start_time_secs": (run.info.start_time or 0) / 1000}
    data = ParseDict({"session_start_info": start}, HParamsPluginData())
    plugin = SummaryMetadata.PluginData(plugin_name="hparams", content=data.SerializeToString())
    metadata = SummaryMetadata(plugin_data=plugin)
    return Summary(value=[Summary.Value(tag="_hparams_/session_start_info", metadata=metadata)])


def _table(rows: Mapping[str, str]) -> str:
    lines = [f"| {_cell(name)} | {_cell(value)} |" for name, value in sorted(rows.items())]
    return "\n".join(["| name | value |", "|---|---|", *lines])


def _cell(value: str) -> str:
    return " ".join(value.replace("\\", "\\\\").replace("|", "\\|").split())


def _parsed(value: str) -> bool | float | str:
    if value in ("True", "False"):
        return value == "True"
    with contextlib.suppress(ValueError):
        if math.isfinite(number := float(value)):
            return number
    return value
