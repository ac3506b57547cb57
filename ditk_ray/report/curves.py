"""Learning curves: the evaluations of a trial, as its `metrics.jsonl` has them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ditk_ray.report.values import is_number
from ditk_ray.trial.report_keys import ENDED

_SEED = re.compile(r"eval_value_seed_(\d+)")

Numbers = list[float | None]


@dataclass(frozen=True)
class Curve:
    """A trial's evaluations in the order they were made.

    `steps` are environment steps and `scores` those of the metric; a None is a gap, where
    there was no score or another attempt begins. `seeds` has a seed's own scores along the
    same steps. `seconds` are those that all attempts together trained.
    """

    steps: Numbers = field(default_factory=list)
    scores: Numbers = field(default_factory=list)
    seeds: dict[str, Numbers] = field(default_factory=dict)
    seconds: float = 0.0
    attempts: int = 0

    @property
    def evaluations(self) -> int:
        """How many evaluations have a score."""
        return sum(score is not None for score in self.scores)


def read_curve(file: Path, metric: str) -> Curve:
    """Read a trial's evaluations; one that has none has an empty curve."""
    rows: list[dict[str, Any]] = []
    seconds, attempts, last = 0.0, 0, 0.0
    for row in _evaluations(file):
        now = row["time"] if is_number(row.get("time")) else last
        if now < last:  # the clock of another attempt
            seconds += last
            rows.append({})
        if now < last or not rows:
            attempts += 1
        last = now
        rows.append(row)
    seeds = {match[1]: name for name in _names(rows) if (match := _SEED.fullmatch(name))}
    return Curve(
        _column(rows, "env_step"),
        _column(rows, metric),
        {seed: _column(rows, name) for seed, name in seeds.items()},
        seconds + last,
        attempts,
    )


def thinned(scores: Sequence[float | None], limit: int) -> list[int]:
    """Return the places of about `limit` scores that draw the same line.

    Of each stretch the ends, the lowest, the highest and the gaps are kept.
    """
    if len(scores) <= limit:
        return list(range(len(scores)))
    length = -(-4 * len(scores) // limit)
    kept = {0, len(scores) - 1}
    for start in range(0, len(scores), length):
        places = range(start, min(start + length, len(scores)))
        known = [(score, place) for place in places if (score := scores[place]) is not None]
        kept |= {place for place in places if scores[place] is None}
        if known:
            kept |= {known[0][1], known[-1][1], min(known)[1], max(known)[1]}
    return sorted(kept)


def _column(rows: Sequence[Mapping[str, Any]], name: str) -> Numbers:
    return [value if is_number(value := row.get(name)) else None for row in rows]


def _names(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    return sorted({name for row in rows for name in row})


def _evaluations(file: Path) -> Iterator[dict[str, Any]]:
    """Yield a trial's evaluations once each: the line that ends it repeats the last one."""
    last: dict[str, Any] = {}
    for line in _lines(file):
        try:
            row = json.loads(line)
        except ValueError:
            continue  # the end of a file that is being written
        if not isinstance(row, dict) or (ENDED in row and _told(row) == last):
            continue
        yield row
        last = row


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []


def _told(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if not name.startswith("ditk_ray_")}
