"""Pods that only pretend to train: what they print, and when."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from ditk_ray.dijob.pod_runner import MARK
from tests.kube.stand_in.containers import Simulated

STEP = 100
"""How many environment steps lie between evaluations."""


def said(n: int, kind: str, **values: Any) -> str:
    """Return a marked line."""
    return MARK + json.dumps({"n": n, "kind": kind, **values})


def evaluation(n: int) -> str:
    """Return the line of a trial's nth evaluation."""
    metrics = {"eval_value": float(n), "env_step": n * STEP, "train_iter": n, "time": n / 10}
    return said(n, "evaluation", metrics=metrics)


def training(evaluations: int, every: float = 0.2) -> Callable[[Any], Simulated]:
    """Have pods evaluate so often, and end well."""
    lines = [(0.0, "begun")]
    lines += [(every, evaluation(n)) for n in range(1, evaluations + 1)]
    lines += [(0.0, said(evaluations + 1, "end", returned={}))]
    return lambda pod: Simulated(lines)
