"""Learning curves: the evaluations of a trial, as its `metrics.jsonl` has them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ditk_ray.report.values import is_number
from ditk_ray.tracking.trial_metrics import before, by_attempt, read_metrics
from ditk_ray.trial.json_lines import Row

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


def read_curve(folder: Path, metric: str) -> Curve:
    """Read the evaluations of the trial in this folder; one that has none has an empty curve."""
    attempts = by_attempt(read_metrics(folder))
    rows = [row for attempt in attempts for row in ({}, *attempt)][1:]
    seeds = {match[1]: name for name in _names(rows) if (match := _SEED.fullmatch(name))}
    return Curve(
        _column(rows, "env_step"),
        _column(rows, metric),
        {seed: _column(rows, name) for seed, name in seeds.items()},
        _seconds(attempts),
        len(attempts),
    )


def _seconds(attempts: Sequence[Sequence[Row]]) -> float:
    """Return how long all attempts trained.

    One that goes on from a checkpoint goes on with the clock of the attempt that wrote it;
    one that begins anew has a new clock.
    """
    seconds = 0.0
    progress: list[Row] = []
    for attempt in attempts:
        kept = before(progress, attempt[0])
        reached = max((_time(row) for row in kept), default=0.0)
        begun = reached if _time(attempt[0]) >= reached else 0.0
        seconds += max(_time(row) for row in attempt) - begun
        progress = [*kept, *attempt]
    return seconds


def _time(row: Mapping[str, Any]) -> float:
    return row["time"] if is_number(row.get("time")) else 0.0


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
