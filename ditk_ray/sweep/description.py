"""Describing what a sweep was asked to do, as plain data for its record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from ditk_ray.config.entries import entry_name
from ditk_ray.config.resources import TrialResources
from ditk_ray.config.space_description import describe_space
from ditk_ray.kube.manifests import ALL_TASKS
from ditk_ray.provenance.masking import mask_text
from ditk_ray.search.combined import show_stopper
from ditk_ray.sweep.drivers import scheduler_name, searcher_name
from ditk_ray.sweep.setup import PreparedSweep


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
        "objectives": [vars(objective) for objective in job.objectives],
        **{key: getattr(job, key) for key in plain},
        "max_concurrent": sweep.concurrency,
        "seeds": list(sweep.seeds),
        "seeds_aggregate": job.seeds_aggregate,
        "sampling_seed": sweep.options.seed,
        **_where_trials_run(sweep),
        "searcher": _describe_part(searcher_name(job), job.searcher_options, job.searcher),
        "scheduler": _describe_part(
            scheduler_name(job), job.scheduler_options, sweep.parts.scheduler
        ),
        "known_points": len(job.known_points),
        "warm_start": job.warm_start,
        "stopper": None if job.stopper is None else show_stopper(job.stopper),
        "space": describe_space(job.space),
    }


def _where_trials_run(sweep: PreparedSweep) -> dict[str, Any]:
    if sweep.dijob is None:
        return {"resources": _amounts(sweep.resources)}
    given = {task: _amounts(one) for task, one in sweep.dijob.resources.items()}
    return {
        "resources": given.get(ALL_TASKS, {}),
        "task_resources": {task: one for task, one in given.items() if task != ALL_TASKS},
        "dijobs": {
            "template": sweep.dijob.template.source,
            "namespace": sweep.dijob.namespace,
            "sweep": sweep.dijob.sweep_key,
        },
    }


def _amounts(resources: TrialResources) -> dict[str, Any]:
    return {key: value for key, value in asdict(resources).items() if value}


def _describe_part(name: str | None, options: Mapping[str, Any], part: Any) -> dict[str, Any]:
    """Return a searcher's or scheduler's name as given, and those settings that are plain.

    Of an object that the user made, or that was made by name, its own attributes count.
    """
    settings = {key.strip("_"): value for key, value in getattr(part, "__dict__", {}).items()}
    plain = {
        key: mask_text(value) if isinstance(value, str) else value
        for key, value in {**settings, **options}.items()
        if value is None or isinstance(value, (bool, int, float, str))
    }
    return {"name": name or type(part).__name__, "settings": plain}
