"""Reading logs of any size, also such that still grow."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ditk_ray.tracking.trial_files import attempt_logs, attempts

_BLOCK = 64 * 1024


class LogReader:
    """Reads one log from where it stopped last; what is no text becomes replacement characters."""

    def __init__(self, path: Path, start: int = 0) -> None:
        self._path = path
        self._position = start
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def read(self) -> Iterator[str]:
        """Yield, in blocks, what was written since the last time."""
        with self._path.open("rb") as file:
            if file.seek(0, 2) < self._position:  # it was written anew
                self._position = 0
            file.seek(self._position)
            while block := file.read(_BLOCK):
                self._position += len(block)
                if text := self._decoder.decode(block):
                    yield text


def tail_start(path: Path, lines: int) -> int:
    """Return where the last `lines` lines of a log begin, searched from its end."""
    with path.open("rb") as file:
        # The very last byte may be a line break, but none that a line follows.
        position = max(0, file.seek(0, 2) - 1)
        while position > 0:
            begin = max(0, position - _BLOCK)
            file.seek(begin)
            block = file.read(position - begin)
            found = block.count(b"\n")
            if found >= lines:
                return begin + _after_break(block, lines)
            lines -= found
            position = begin
    return 0


def _after_break(block: bytes, number: int) -> int:
    """Return where the line begins that follows the `number`th line break from the end."""
    place = len(block)
    for _ in range(number):
        place = block.rfind(b"\n", 0, place)
    return place + 1


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
        """Return the attempts to read from; also an older one may have grown since."""
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
