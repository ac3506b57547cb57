"""Reading what a trial reported, from its `metrics.jsonl`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from ditk_ray.trial.files import METRICS_FILE
from ditk_ray.trial.json_lines import Row, read_rows
from ditk_ray.trial.report_keys import ATTEMPT, ENDED, REPORT

_OWN_PREFIX = "ditk_ray_"


def read_metrics(folder: Path) -> list[Row]:
    """Return all evaluations of the trial in this folder, of all attempts, in their order.

    The line that ends a trial repeats its last evaluation; it is left out unless it says
    more. So is what a killed trial left unfinished. Without a file there are none.
    """
    rows: list[Row] = []
    for row in filter(_told, read_rows(folder / METRICS_FILE)):
        if not (ENDED in row and rows and _repeats(row, rows[-1])):
            rows.append(row)
    return rows


def by_attempt(rows: Sequence[Row]) -> list[list[Row]]:
    """Return the evaluations of each attempt, oldest first."""
    return [list(own) for _, own in groupby(rows, key=lambda row: row.get(ATTEMPT, 0))]


def line_of_progress(rows: Sequence[Row]) -> list[Row]:
    """Return the evaluations that led to where the trial is.

    A later attempt goes on from a checkpoint of an earlier one: what the earlier did beyond
    the `env_step` where the later begins was lost, and done again.
    """
    kept: list[Row] = []
    for attempt in by_attempt(rows):
        kept = [*before(kept, attempt[0]), *attempt]
    return kept


def before(rows: Sequence[Row], first: Mapping[str, Any]) -> list[Row]:
    """Return those of the earlier evaluations that lie before the first of another attempt.

    Reports are numbered through a trial's life. Where they are not, `env_step` tells; one
    without that has no checkpoint to go on from, so it begins anew.
    """
    if REPORT in first:
        return [row for row in rows if row.get(REPORT, 0) < first[REPORT]]
    start = _step(first, -math.inf)
    return [row for row in rows if _step(row, math.inf) < start]


def _repeats(row: Row, last: Row) -> bool:
    is_same = row.get(ATTEMPT) == last.get(ATTEMPT)
    return is_same and all(name in last and last[name] == row[name] for name in _told(row))


def own_metrics_of(row: Row) -> Row:
    """Return what a trial measured, without what is said of the report itself."""
    return {name: row[name] for name in _told(row)}


def _told(row: Row) -> list[str]:
    return [name for name in row if not name.startswith(_OWN_PREFIX)]


def _step(row: Mapping[str, Any], missing: float) -> float:
    step = row.get("env_step")
    return step if isinstance(step, (int, float)) else missing
