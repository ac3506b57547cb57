"""What sweeps that are dead have left in the cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime

from ditk_ray.errors import KubeConflictError, KubeNotFoundError
from ditk_ray.kube.ages import age_of, show_age
from ditk_ray.kube.connection import Kube
from ditk_ray.kube.dijobs import phase_of
from ditk_ray.kube.job_choice import sweep_of
from ditk_ray.kube.labels import MANAGED_BY, MANAGER, SWEEP
from ditk_ray.kube.objects import Manifest
from ditk_ray.kube.resources import CONFIG_MAPS, DIJOBS
from ditk_ray.kube.sweep_life import DEAD_SECONDS, signs_of_life, silences


@dataclass(frozen=True)
class Leftover:
    """An object that belongs to no living sweep, and why that is known."""

    kind: str
    name: str
    uid: str
    sweep: str
    age: float
    phase: str
    why: str


def find_leftovers(kube: Kube, now: datetime) -> list[Leftover]:
    """Return the jobs of dead sweeps, and the signs of life that are too old.

    What has no sweep's label is none of a sweep's, and is not among them. Other objects need
    not be looked for: a job owns its ConfigMap, its pods and its Service.
    """
    # The jobs first: a sweep that begins just now gives its sign of life by then.
    jobs = kube.dijobs.list(f"{MANAGED_BY}={MANAGER},{SWEEP}")
    signs = signs_of_life(kube)
    silent = silences(signs, now)
    # Of a sweep that has only just begun there may be no sign yet.
    dead = [job for job in jobs if silent.get(sweep_of(job), age_of(job, now)) >= DEAD_SECONDS]
    found = [_leftover(DIJOBS.kind, job, now, silent.get(sweep_of(job))) for job in dead]
    old = [sign for sign in signs if silent[sweep_of(sign)] >= DEAD_SECONDS]
    found += [_leftover(CONFIG_MAPS.kind, sign, now, silent[sweep_of(sign)]) for sign in old]
    return sorted(found, key=lambda item: (item.sweep, item.kind != DIJOBS.kind, item.name))


def delete_leftovers(
    kube: Kube, chosen: Iterable[Leftover], tell: Callable[[Leftover], None]
) -> None:
    """Delete what was found, and call `tell` with each that was there."""
    clients = {DIJOBS.kind: kube.dijobs, CONFIG_MAPS.kind: kube.config_maps}
    for item in chosen:
        try:
            clients[item.kind].delete(item.name, item.uid)
        except (KubeNotFoundError, KubeConflictError):
            continue  # somebody else did it, and another may have its name by now
        tell(item)


def _leftover(kind: str, found: Manifest, now: datetime, silence: float | None) -> Leftover:
    why = "its sweep gives no sign of life"
    if silence is not None:
        why = f"its sweep gave its last sign of life {show_age(silence)} ago"
    return Leftover(
        kind=kind,
        name=found["metadata"]["name"],
        uid=found["metadata"]["uid"],
        sweep=sweep_of(found),
        age=age_of(found, now),
        phase=phase_of(found),
        why=why,
    )
