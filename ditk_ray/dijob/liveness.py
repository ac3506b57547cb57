"""Which sweeps are alive, by the sign of life that each keeps fresh, and what dead ones left."""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime

from ditk_ray.dijob import jobs
from ditk_ray.errors import BadConfigError, KubeNotFoundError, Problem
from ditk_ray.kube.connection import Kube
from ditk_ray.kube.objects import (
    CONFIG_MAPS,
    DIJOBS,
    MANAGED_BY,
    MANAGER,
    Manifest,
    Objects,
    Piece,
    age_of,
    seconds_since,
    show_age,
)
from ditk_ray.util.suggest import did_you_mean

BEAT_SECONDS = 60.0
DEAD_SECONDS = 600.0
"""A sweep that gave no sign of life for so long is dead."""


class Heartbeat:
    """A ConfigMap with the time at which the sweep was last alive.

    Raises KubeError, and asks once only: there is always a next beat.
    """

    def __init__(self, config_maps: Objects, sweep_key: str) -> None:
        self._config_maps = config_maps
        self._name = jobs.heartbeat_name(sweep_key)
        self._labels = {jobs.SWEEP: sweep_key, jobs.HEARTBEAT: "true", MANAGED_BY: MANAGER}

    def beat(self) -> None:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        metadata = {"labels": self._labels, "annotations": {jobs.ALIVE_AT: now}}
        try:
            self._config_maps.patch(self._name, {"metadata": metadata}, patience=0)
        except KubeNotFoundError:
            whole = {"metadata": {**metadata, "name": self._name}}
            self._config_maps.create(whole, is_repeatable=True, patience=0)

    def remove(self) -> None:
        with contextlib.suppress(KubeNotFoundError):
            self._config_maps.delete(self._name, patience=0)


def _signs_of_life(kube: Kube) -> dict[str, Manifest]:
    return {sweep_of(sign): sign for sign in kube.config_maps.list(f"{jobs.HEARTBEAT}=true")}


def _silence_of(sign: Manifest, now: datetime) -> float:
    alive_at = (sign["metadata"].get("annotations") or {}).get(jobs.ALIVE_AT)
    return seconds_since(str(alive_at), now) if alive_at else age_of(sign, now)


def find_leftovers(kube: Kube, now: datetime) -> list[tuple[Piece, str]]:
    """Return the jobs of dead sweeps, and signs of life that are too old, each with why.

    What has no sweep's label is not of a sweep, and is not among them. Other objects need
    not be looked for: a job owns its ConfigMap, its pods and its Service.
    """
    # The jobs first: a sweep that begins just now gives its sign of life by then.
    made = kube.dijobs.list(f"{MANAGED_BY}={MANAGER},{jobs.SWEEP}")
    signs = _signs_of_life(kube)
    pieces = [Piece(DIJOBS, job) for job in made]
    pieces += [Piece(CONFIG_MAPS, sign) for sign in signs.values()]
    found = []
    for piece in sorted(pieces, key=lambda piece: sweep_of(piece.manifest)):
        sign = signs.get(sweep_of(piece.manifest))
        # Of a sweep that has only just begun there may be no sign yet.
        silence = _silence_of(sign, now) if sign else age_of(piece.manifest, now)
        last = f"gave its last sign of life {show_age(silence)} ago"
        if silence >= DEAD_SECONDS:
            found.append((piece, f"its sweep {last if sign else 'gives no sign of life'}"))
    return found


def sweep_of(job: Manifest) -> str:
    """Return the key of the sweep that a job is of; empty if it is of none."""
    return str((job["metadata"].get("labels") or {}).get(jobs.SWEEP, ""))


def jobs_of_sweep(kube: Kube, sweep: str) -> list[Manifest]:
    """Return the jobs of a sweep, which is named by its key, or by its name if only one has it.

    Raises BadConfigError when no job is of such a sweep, or several sweeps have the name.
    """
    there = kube.dijobs.list(jobs.SWEEP)
    keys = sorted(set(map(sweep_of, there)))
    slugs = {key: key.rpartition("-")[0] for key in keys}
    named = [key for key in keys if slugs[key] == jobs.slug_of(sweep)]
    chosen = [sweep] if sweep in keys else named
    if len(chosen) != 1:
        what = f"no DIJob in namespace {kube.namespace!r} is of a sweep {sweep!r}"
        hint = did_you_mean(sweep, {*keys, *slugs.values()})
        if chosen:
            what, hint = f"several sweeps are called {sweep!r}", f"name one: {', '.join(chosen)}"
        raise BadConfigError(Problem("--sweep", what, hint))
    return [job for job in there if sweep_of(job) == chosen[0]]


def finished_jobs(kube: Kube, now: datetime) -> list[Manifest]:
    """Return the jobs that have ended, except those of living sweeps, which delete their own."""
    ended = [job for job in kube.dijobs.list() if jobs.is_finished(job)]
    signs = _signs_of_life(kube) if any(map(sweep_of, ended)) else {}
    alive = {sweep for sweep, sign in signs.items() if _silence_of(sign, now) < DEAD_SECONDS}
    return [job for job in ended if sweep_of(job) not in alive]
