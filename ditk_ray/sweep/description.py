"""Describing what a sweep was asked to do, as plain data for its record."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from ditk_ray.config.entries import entry_name
from ditk_ray.config.space_description import describe_space
from ditk_ray.provenance.masking import mask_text
from ditk_ray.sweep.setup import PreparedSweep

_DEFAULTS = {"searcher": "random", "scheduler": "fifo"}


def describe_job(sweep: PreparedSweep) -> dict[str, Any]:
    """Return the job with its space, and what searches and schedules it."""
    job = sweep.job
    plain = ("num_samples", "max_env_step", "max_train_iter", "max_trial_time", "max_time")
    return {
        "name": job.name,
        "file": job.file and str(job.file),
        "config": job.config.source,
        "entry": entry_name(job.entry),
        "backend": job.backend,
        "metric": job.metric,
        "mode": job.mode,
        **{key: getattr(job, key) for key in plain},
        "max_concurrent": sweep.concurrency,
        "seeds": list(sweep.seeds),
        "sampling_seed": sweep.options.seed,
        "resources": {key: value for key, value in asdict(sweep.resources).items() if value},
        "searcher": _describe_part("searcher", job.searcher),
        "scheduler": _describe_part("scheduler", job.scheduler),
        "stopper": None if job.stopper is None else _describe_value(job.stopper),
        "space": describe_space(job.space),
    }


def _describe_part(kind: str, part: Any) -> dict[str, Any]:
    """Return a searcher's or scheduler's class and those of its settings that are plain."""
    if part is None:
        return {"name": _DEFAULTS[kind], "settings": {}}
    settings = {
        key.strip("_"): mask_text(value) if isinstance(value, str) else value
        for key, value in vars(part).items()
        if value is None or isinstance(value, (bool, int, float, str))
    }
    return {"name": type(part).__name__, "settings": settings}


def _describe_value(value: Any) -> Any:
    if isinstance(value, (str, dict)):
        return value
    return getattr(value, "__name__", type(value).__name__)
