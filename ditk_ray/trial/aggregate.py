"""One value for a trial of those of its seeds, and how far it can be trusted."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from ditk_ray.execution.executor import Metrics

RESAMPLES = 2000
CONFIDENCE = 0.95
SCORE = "eval_value"

Numbers = npt.NDArray[np.float64]


def aggregate(values: Numbers, how: str, mode: str = "max") -> Numbers:
    """Return one value for each row of `values`, of the seeds in its columns.

    `how` is `mean`, `median`, `worst` (the smallest if `mode` is `max`, else the largest) or
    `iqm`. A seed without a number makes the whole of it none.
    """
    if how == "mean":
        return np.asarray(values.mean(axis=-1))
    if how == "median":
        return np.asarray(np.median(values, axis=-1))
    if how == "worst":
        return np.asarray(values.min(axis=-1) if mode == "max" else values.max(axis=-1))
    if how == "iqm":
        return np.asarray(np.sort(values, axis=-1) @ iqm_weights(values.shape[-1]))
    raise ValueError(f"no aggregate is called {how!r}")


@functools.lru_cache
def iqm_weights(count: int) -> Numbers:
    """Return the weights of `count` values, in ascending order, in their interquartile mean.

    That is the mean of the middle half. Each value stands for an equal part of the
    distribution; those on the quartiles count by as much of theirs as lies inside. Of
    four values the middle two count; of three, the middle one four times as much as
    the others; of two or one it is the mean.
    """
    edges = np.arange(count + 1) / count
    inside = np.minimum(edges[1:], 0.75) - np.maximum(edges[:-1], 0.25)
    weights = np.maximum(inside, 0.0)
    return np.asarray(weights / weights.sum())


def bootstrap_interval(values: Numbers, how: str, mode: str = "max") -> tuple[float, float]:
    """Return the 95% percentile interval of the aggregate when seeds are resampled.

    The draws are the same each time. With few seeds it is coarse, and rather too narrow:
    three seeds have ten different resamples.
    """
    drawn = aggregate(values[_resamples(len(values))], how, mode)
    if np.isnan(drawn).any():
        return float("nan"), float("nan")
    low, high = np.quantile(drawn, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return float(low), float(high)


@functools.lru_cache
def _resamples(count: int) -> npt.NDArray[np.int64]:
    return np.random.default_rng(0).integers(count, size=(RESAMPLES, count))


def aggregate_rows(
    rows: Mapping[int, Mapping[str, Any]], metric: str, mode: str = "max", how: str = "mean"
) -> Metrics:
    """Return a trial's metrics of those of its seeds.

    The metric and `eval_value` are aggregated as `how` says, all other numbers that every
    seed has are means. The metric has its interval as `<metric>_low` and `<metric>_high`,
    and both have the seeds' own values as `<name>_seed_<seed>`.
    """
    if len(rows) == 1:
        return dict(next(iter(rows.values())))
    shared = set.intersection(*(set(row) for row in rows.values()))
    first = next(iter(rows.values()))
    columns = {
        name: np.array([row[name] for row in rows.values()], dtype=float)
        for name in first
        if name in shared
    }
    metrics: Metrics = {name: float(values.mean()) for name, values in columns.items()}
    for name in {metric, SCORE} & shared:
        better = mode if name == metric else "max"
        metrics[name] = float(aggregate(columns[name], how, better))
    if metric in shared:
        low, high = bootstrap_interval(columns[metric], how, mode)
        metrics |= {f"{metric}_low": low, f"{metric}_high": high}
    return metrics | {
        f"{name}_seed_{seed}": row[name]
        for name in dict.fromkeys((SCORE, metric))
        for seed, row in rows.items()
        if name in row
    }
