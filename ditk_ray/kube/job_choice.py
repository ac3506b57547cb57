"""Choosing jobs: those of a sweep, or those that have ended."""

from __future__ import annotations

from datetime import datetime

from ditk_ray.config.nearest import did_you_mean
from ditk_ray.errors import BadConfigError, Problem
from ditk_ray.kube.connection import Kube
from ditk_ray.kube.dijobs import is_finished
from ditk_ray.kube.labels import SWEEP, slug_of
from ditk_ray.kube.objects import Manifest
from ditk_ray.kube.sweep_life import living_sweeps


def sweep_of(job: Manifest) -> str:
    """Return the key of the sweep that a job is of; empty if it is of none."""
    return str((job["metadata"].get("labels") or {}).get(SWEEP, ""))


def jobs_of_sweep(kube: Kube, sweep: str) -> list[Manifest]:
    """Return the jobs of a sweep, which is named by its key, or by its name if only one has it.

    Raises BadConfigError when no job is of such a sweep, or several sweeps have the name.
    """
    jobs = kube.dijobs.list(SWEEP)
    keys = sorted(set(map(sweep_of, jobs)))
    slugs = {key: key.rpartition("-")[0] for key in keys}
    named = [key for key in keys if slugs[key] == slug_of(sweep)]
    chosen = [sweep] if sweep in keys else named
    if len(chosen) != 1:
        what = f"no DIJob in namespace {kube.namespace!r} is of a sweep {sweep!r}"
        hint = did_you_mean(sweep, {*keys, *slugs.values()})
        if chosen:
            what, hint = f"several sweeps are called {sweep!r}", f"name one: {', '.join(chosen)}"
        raise BadConfigError(Problem("--sweep", what, hint))
    return [job for job in jobs if sweep_of(job) == chosen[0]]


def finished_jobs(kube: Kube, now: datetime) -> list[Manifest]:
    """Return the jobs that have ended, but for those of living sweeps, which see to their own."""
    ended = [job for job in kube.dijobs.list() if is_finished(job)]
    alive = living_sweeps(kube, now) if any(map(sweep_of, ended)) else set[str]()
    return [job for job in ended if sweep_of(job) not in alive]
