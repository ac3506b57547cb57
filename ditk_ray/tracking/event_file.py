"""One MLflow run as a TensorBoard event file.

Metrics are scalars with MLflow's steps and times, under MLflow's names. TensorBoard
keeps scalars as 32-bit floats, so does its file. Parameters, tags and the run itself
are tables of text; the parameters are hyperparameters as well, to be compared.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path

from mlflow.entities import Metric, Run
from tensorboardX.proto.api_pb2 import Status
from tensorboardX.proto.event_pb2 import Event
from tensorboardX.proto.plugin_hparams_pb2 import (
    HParamsPluginData,
    SessionEndInfo,
    SessionStartInfo,
)
from tensorboardX.proto.summary_pb2 import Summary, SummaryMetadata
from tensorboardX.record_writer import RecordWriter
from tensorboardX.summary import text

HPARAM_LENGTH = 200
"""Longer values of parameters are cut in the comparison; the table has them whole."""

_STATUSES = {"FINISHED": "STATUS_SUCCESS", "FAILED": "STATUS_FAILURE", "KILLED": "STATUS_FAILURE"}


def write_event_file(path: Path, run: Run, histories: Iterable[list[Metric]]) -> int:
    """Write a run with all that its metrics ever were; return the number of points.

    The file is whole, and on the disk, only when this returns.
    """
    writer, points = RecordWriter(str(path)), 0
    try:
        for event in _about(run):
            writer.write(event.SerializeToString())
        for history in histories:
            for metric in history:
                writer.write(_point(metric).SerializeToString())
            points += len(history)
        writer.flush()
    finally:
        writer.close()
    return points


def _point(metric: Metric) -> Event:
    value = Summary.Value(tag=metric.key, simple_value=metric.value)
    return Event(
        wall_time=metric.timestamp / 1000, step=metric.step, summary=Summary(value=[value])
    )


def _about(run: Run) -> Iterable[Event]:
    """Return the events that come before the metrics."""
    time = (run.info.start_time or 0) / 1000
    yield Event(wall_time=time, file_version="brain.Event:2")
    tables = {"run": _facts(run), "params": run.data.params, "tags": run.data.tags}
    summaries = [text(name, _table(rows)) for name, rows in tables.items() if rows]
    for summary in summaries + (_hparams(run) if run.data.params else []):
        yield Event(wall_time=time, summary=summary)


def _facts(run: Run) -> dict[str, str]:
    info = run.info
    return {
        "name": info.run_name or "",
        "id": info.run_id,
        "status": info.status,
        "started": _when(info.start_time),
        "ended": _when(info.end_time),
        "artifacts": info.artifact_uri or "",
    }


def _when(milliseconds: int | None) -> str:
    if not milliseconds:
        return ""
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="seconds")


def _table(rows: Mapping[str, str]) -> str:
    """Return a table in Markdown, which TensorBoard shows."""
    lines = [f"| {_cell(name)} | {_cell(value)} |" for name, value in sorted(rows.items())]
    return "\n".join(["| name | value |", "|---|---|", *lines])


def _cell(value: str) -> str:
    return " ".join(value.replace("\\", "\\\\").replace("|", "\\|").split())


def _hparams(run: Run) -> list[Summary]:
    """Return what makes the run a line in TensorBoard's comparison of hyperparameters.

    The third part of that protocol, a description of the whole experiment, is left
    out on purpose: TensorBoard takes the first one it finds, and without any it
    makes the union of all runs' parameters and metrics itself.
    """
    begin = SessionStartInfo(start_time_secs=(run.info.start_time or 0) / 1000)
    for name, value in run.data.params.items():
        parsed = _parsed(value)
        if isinstance(parsed, bool):
            begin.hparams[name].bool_value = parsed
        elif isinstance(parsed, float):
            begin.hparams[name].number_value = parsed
        else:
            begin.hparams[name].string_value = parsed
    summaries = [_plugin("session_start_info", HParamsPluginData(session_start_info=begin))]
    if run.info.status in _STATUSES:
        status = Status.Value(_STATUSES[run.info.status])
        end = SessionEndInfo(status=status, end_time_secs=(run.info.end_time or 0) / 1000)
        summaries.append(_plugin("session_end_info", HParamsPluginData(session_end_info=end)))
    return summaries


def _plugin(tag: str, data: HParamsPluginData) -> Summary:
    content = SummaryMetadata.PluginData(plugin_name="hparams", content=data.SerializeToString())
    metadata = SummaryMetadata(plugin_data=content)
    return Summary(value=[Summary.Value(tag=f"_hparams_/{tag}", metadata=metadata)])


def _parsed(value: str) -> bool | float | str:
    """Return what a parameter was before MLflow made it text."""
    if value in ("True", "False"):
        return value == "True"
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if math.isfinite(number):
        return number
    return value if len(value) <= HPARAM_LENGTH else value[: HPARAM_LENGTH - 1] + "…"
