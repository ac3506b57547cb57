"""Reading the logs of trials."""

from __future__ import annotations

import re
from pathlib import Path

from ditk_ray.tracking.log_reading import tail_start
from ditk_ray.tracking.record import TrialRecord

TAIL_LINES = 12
_TAIL_BYTES = 16384
_LOG = re.compile(r" \[log: (.*)\]$")


def tail(log: Path, lines: int = TAIL_LINES) -> list[str]:
    """Return the last lines of a log; of very long ones only the end."""
    try:
        with log.open("rb") as file:
            least = file.seek(0, 2) - _TAIL_BYTES
            file.seek(max(tail_start(log, lines), least))
            return file.read().decode(errors="replace").splitlines()[-lines:]
    except OSError:
        return []


def split_error(trial: TrialRecord) -> tuple[str, Path | None]:
    """Return a failed trial's error and the log that it names.

    The log is looked for in the trial's folder as well, which may have been moved.
    """
    error = trial.error or ""
    found = _LOG.search(error)
    if found is None:
        return error, None
    log = Path(found[1])
    if not log.is_file() and trial.id in log.parts:
        inside = log.parts[log.parts.index(trial.id) + 1 :]
        log = Path(trial.dir).joinpath(*inside)
    return _LOG.sub("", error), log
