"""A DIJob in one line, with the columns that kubectl shows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from ditk_ray.kube.ages import age_of, show_age
from ditk_ray.kube.dijobs import phase_of
from ditk_ray.kube.labels import SWEEP, TRIAL
from ditk_ray.kube.objects import Manifest

HEADINGS = ("NAME", "PHASE", "READY", "REPLICAS", "RESTARTS", "RESCHEDULES", "AGE")
SWEEP_HEADINGS = ("SWEEP", "TRIAL")
GONE = "Deleted"
"""What stands for the phase of a job that is not there any more."""


@dataclass(frozen=True)
class JobRow:
    """What is shown of a job among others; `sweep` and `trial` are empty if it has none."""

    name: str
    phase: str
    ready: int
    replicas: int
    restarts: int
    reschedules: int
    age: float
    sweep: str
    trial: str

    def cells(self, has_sweep: bool) -> list[str]:
        """Return what goes under the headings."""
        counts = (self.ready, self.replicas, self.restarts, self.reschedules)
        cells = [self.name, self.phase, *map(str, counts), show_age(self.age)]
        return [*cells, self.sweep, self.trial] if has_sweep else cells


def job_row(job: Manifest, now: datetime, is_gone: bool = False) -> JobRow:
    """Return the line for a job."""
    status = job.get("status") or {}
    labels = job["metadata"].get("labels") or {}
    return JobRow(
        name=job["metadata"]["name"],
        phase=GONE if is_gone else phase_of(job),
        ready=status.get("readyReplicas") or 0,
        replicas=status.get("replicas") or 0,
        restarts=status.get("restarts") or 0,
        reschedules=status.get("reschedules") or 0,
        age=age_of(job, now),
        sweep=labels.get(SWEEP, ""),
        trial=labels.get(TRIAL, ""),
    )


def job_table(rows: Iterable[JobRow]) -> list[list[str]]:
    """Return the headings and a line for each job; with sweeps if one is of a sweep."""
    given = list(rows)
    has_sweep = any(row.sweep for row in given)
    headings = [*HEADINGS, *(SWEEP_HEADINGS if has_sweep else ())]
    return [headings, *(row.cells(has_sweep) for row in given)]
