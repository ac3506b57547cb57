"""The small print: what was asked for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ditk_ray.config.objectives import show_objectives
from ditk_ray.config.parameter_text import show_description
from ditk_ray.config.quantities import show_bytes, show_seconds
from ditk_ray.report.data import SweepData
from ditk_ray.report.values import is_number, show_count

Rows = list[tuple[str, str]]


def job_rows(sweep: SweepData) -> Rows:
    """Return what was asked for, without what the record does not tell."""
    job = sweep.job
    rows = [
        ("job", job.get("name")),
        ("file", job.get("file")),
        ("config", job.get("config")),
        ("entry", job.get("entry")),
        ("backend", job.get("backend")),
        ("optimised", show_objectives(sweep.record.objectives)),
        ("samples", job.get("num_samples")),
        ("steps of a trial", _maximum(job.get("max_env_step"))),
        ("iterations of a trial", _maximum(job.get("max_train_iter"))),
        ("time of a trial", _time(job.get("max_trial_time"))),
        ("time of the sweep", _time(job.get("max_time"))),
        ("seeds", ", ".join(map(str, job.get("seeds") or ()))),
        ("resources of a trial", _resources(job.get("resources") or {})),
        ("at once, at most", job.get("max_concurrent")),
        ("searcher", _part(job.get("searcher"))),
        ("scheduler", _part(job.get("scheduler"))),
        ("stopper", job.get("stopper")),
    ]
    return [(name, str(value)) for name, value in rows if value not in (None, "", 0)]


def space_rows(sweep: SweepData) -> list[tuple[str, str, str]]:
    """Return each parameter's name, what it was drawn from, and when it exists."""
    return [
        (name, show_description(description), _conditions(description))
        for name, description in (sweep.job.get("space") or {}).items()
    ]


def _maximum(value: Any) -> str:
    return f"at most {show_count(value)}" if is_number(value) and value < 1e15 else ""


def _time(value: Any) -> str:
    return f"at most {show_seconds(value)}" if is_number(value) else ""


def _resources(resources: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{show_bytes(value)} memory" if name == "memory" else f"{value:g} {name}"
        for name, value in resources.items()
        if is_number(value)
    )


def _part(part: Any) -> str:
    if not isinstance(part, Mapping):
        return ""
    known = {key: value for key, value in part.get("settings", {}).items() if value is not None}
    settings = ", ".join(f"{key}={value!r}" for key, value in known.items())
    return f"{part.get('name')}{f' ({settings})' if settings else ''}"


def _conditions(description: Mapping[str, Any]) -> str:
    found = description.get("when") or []
    return " and ".join(f"{one['parent']} is {one['is']}" for one in found)
