"""A sweep as seen from outside, by another process."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from datetime import UTC, datetime
from math import prod
from pathlib import Path

from ditk_ray.tracking.lock import is_running
from ditk_ray.tracking.record import RECORD_FILE, SweepRecord, SweepStatus, read_record

DEAD = "dead"
"""The status of a sweep whose process is gone without having said how it ended."""


@dataclass(frozen=True)
class SeenSweep:
    """A sweep's record, and whether its process lives at this moment."""

    folder: Path
    record: SweepRecord
    is_alive: bool
    """Also for a while after the last trial: its report and its records are to be finished."""

    @property
    def status(self) -> str:
        """The recorded status, or `dead`."""
        is_dead = self.record.status is SweepStatus.RUNNING and not self.is_alive
        return DEAD if is_dead else str(self.record.status)

    @property
    def is_running(self) -> bool:
        """Whether trials may still run."""
        return self.is_alive and self.record.status is SweepStatus.RUNNING

    @property
    def done(self) -> int:
        """How many trials have ended."""
        return sum(trial.state.is_final for trial in self.record.trials.values())

    @property
    def total(self) -> int:
        """How many trials were asked for: the grid's points, `num_samples` times."""
        job = self.record.job
        grids = [
            len(item["choices"]) for item in job.get("space", {}).values() if item["kind"] == "grid"
        ]
        return max(prod(grids) * int(job.get("num_samples", 0)), len(self.record.trials))

    @property
    def seconds(self) -> float | None:
        """How long it ran: until its end, until now, or until it was last heard of."""
        with contextlib.suppress(ValueError, TypeError, OSError):
            begun = datetime.fromisoformat(self.record.started)
            return max(0.0, (self._last() - begun).total_seconds())
        return None

    def _last(self) -> datetime:
        if self.record.ended:
            return datetime.fromisoformat(self.record.ended)
        if self.is_alive:
            return datetime.now(UTC)
        return datetime.fromtimestamp((self.folder / RECORD_FILE).stat().st_mtime, UTC)


def look_at(folder: Path) -> SeenSweep:
    """Read a sweep's record and see whether it runs. Raises `BadConfigError` as `read_record`."""
    record = read_record(folder)
    try:
        is_alive = is_running(folder)
    except OSError:  # another user's: the lock may not be touched, so believe the record
        return SeenSweep(folder, record, record.status is SweepStatus.RUNNING)
    if record.status is SweepStatus.RUNNING and not is_alive:
        record = read_record(folder)  # it may have ended, and said so, since the first time
    return SeenSweep(folder, record, is_alive)
