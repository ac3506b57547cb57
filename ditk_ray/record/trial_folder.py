"""A trial's folder: its attempts and seeds, what it reported, its logs and checkpoints."""

from __future__ import annotations

import codecs
import re
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import accumulate, groupby
from pathlib import Path
from typing import NamedTuple

from ditk_ray.record.record import TrialRecord
from ditk_ray.trial.reports import ATTEMPT, ENDED, LOG_FILE, METRICS_FILE
from ditk_ray.util.files import Row, read_rows

BEST_CHECKPOINT = "ckpt_best.pth.tar"
"""What DI-engine saves at a training's best evaluation."""

PARAMS_HISTORY_FILE = "params_history.json"
"""What a scheduler made of the parameters on the way."""

TAIL_LINES = 12
_TAIL_BYTES = 16384
_BLOCK = 64 * 1024
_NUMBER = re.compile(r"-?\d+")
_LOG = re.compile(r" \[log: (.*)\]$")
_OWN_PREFIX = "ditk_ray_"


def attempts(trial: Path) -> dict[int, Path]:
    return _numbered(trial, "attempt_")


def seed_folders(attempt: Path) -> dict[str, Path]:
    """Return where an attempt trains each seed, by `seed_N`; a single seed has no name."""
    found = _numbered(attempt, "seed_")
    if not found or (attempt / LOG_FILE).exists():
        return {"": attempt}
    return {folder.name: folder for folder in found.values()}


def _numbered(parent: Path, prefix: str) -> dict[int, Path]:
    named = [(folder, folder.name.removeprefix(prefix)) for folder in parent.glob(f"{prefix}*")]
    found = {int(n): folder for folder, n in named if _NUMBER.fullmatch(n) and folder.is_dir()}
    return dict(sorted(found.items()))


def attempt_logs(attempt: Path) -> dict[str, Path]:
    logs = {seed: folder / LOG_FILE for seed, folder in seed_folders(attempt).items()}
    return {seed: log for seed, log in logs.items() if log.is_file()}


def event_folders(attempt: Path) -> dict[str, Path]:
    """Return the folders with TensorBoard event files, by seed.

    DI-engine writes into one; should there be several, each has its path behind the seed.
    """
    found: dict[str, Path] = {}
    for seed, folder in seed_folders(attempt).items():
        places = sorted({file.parent for file in folder.rglob("*tfevents*") if file.is_file()})
        for place in places:
            inside = str(place.relative_to(folder)) if len(places) > 1 else ""
            found["/".join(filter(None, [seed, inside]))] = place
    return found


def best_checkpoints(trial: Path) -> dict[str, Path]:
    """Return the newest checkpoint of a best evaluation, by seed."""
    newest: dict[str, Path] = {}
    found = trial.glob(f"attempt_*/**/{BEST_CHECKPOINT}")
    # A link may lead anywhere, and a trial runs code that is not ours.
    files = [file for file in found if not file.is_symlink()]
    for file in sorted(files, key=lambda file: file.stat().st_mtime):
        inside = file.relative_to(trial).parts[1]
        newest[inside if inside.startswith("seed_") else ""] = file
    return newest


def read_metrics(folder: Path) -> list[Row]:
    """Return all evaluations of the trial in this folder, of all attempts, in their order.

    The line that ends a trial repeats its last evaluation; it is left out unless it says
    more. So is what a killed trial left unfinished. Without a file there are none.
    """
    rows: list[Row] = []
    for row in filter(own_metrics_of, read_rows(folder / METRICS_FILE)):
        if not (ENDED in row and rows and _repeats(row, rows[-1])):
            rows.append(row)
    return rows


def by_attempt(rows: Sequence[Row]) -> list[list[Row]]:
    return [list(own) for _, own in groupby(rows, key=lambda row: row.get(ATTEMPT, 0))]


def _repeats(row: Row, last: Row) -> bool:
    is_same = row.get(ATTEMPT) == last.get(ATTEMPT)
    return is_same and all(
        name in last and last[name] == value for name, value in own_metrics_of(row).items()
    )


def own_metrics_of(row: Row) -> Row:
    """Return what a trial measured, without what is said of the report itself."""
    return {name: value for name, value in row.items() if not name.startswith(_OWN_PREFIX)}


class LogReader:
    """Reads one log from where it stopped last; replaces what is not UTF-8."""

    def __init__(self, path: Path, start: int = 0) -> None:
        self._path = path
        self._position = start
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def read(self) -> Iterator[str]:
        """Yield, in blocks, what was written since the last time."""
        with self._path.open("rb") as file:
            if file.seek(0, 2) < self._position:  # it was rewritten
                self._position = 0
            file.seek(self._position)
            while block := file.read(_BLOCK):
                self._position += len(block)
                if text := self._decoder.decode(block):
                    yield text


def tail_start(path: Path, lines: int) -> int:
    with path.open("rb") as file:
        return deque(accumulate(map(len, file), initial=0), maxlen=lines + 1)[0]


class Piece(NamedTuple):
    """Some text of the log of one seed of one attempt; a single seed has no name."""

    attempt: int
    seed: str
    text: str


class TrialLogs:
    """The logs of a trial: of one attempt, or of the newest and those that follow it."""

    def __init__(
        self,
        trial: Path,
        attempt: int | None = None,
        seed: str | None = None,
        lines: int | None = None,
    ) -> None:
        self._trial = trial
        self._wanted = attempt
        self._seed = seed
        self._lines = lines
        self._newest: int | None = None
        self._readers: dict[Path, LogReader] = {}

    def read(self) -> Iterator[Piece]:
        """Yield what was written since the last time; at first all, or the last `lines`."""
        for number, folder in self._due():
            for seed, log in attempt_logs(folder).items():
                if self._seed in (None, seed):
                    for text in self._reader(log).read():
                        yield Piece(number, seed, text)
        self._lines = None  # what begins later is shown from its beginning

    def _due(self) -> list[tuple[int, Path]]:
        known = attempts(self._trial)
        if self._wanted is not None:
            return [item for item in known.items() if item[0] == self._wanted]
        if not known:
            return []
        first = max(known) if self._newest is None else self._newest
        self._newest = max(known)
        return [item for item in known.items() if item[0] >= first]

    def _reader(self, log: Path) -> LogReader:
        if log not in self._readers:
            start = tail_start(log, self._lines) if self._lines else 0
            self._readers[log] = LogReader(log, start)
        return self._readers[log]


def tail(log: Path, lines: int = TAIL_LINES) -> list[str]:
    """Return the last lines of a log; of very long ones only the end."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, file.seek(0, 2) - _TAIL_BYTES))
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
