"""Reporting every evaluation that DI-engine makes.

DI-engine's serial entries evaluate by a class derived from `ISerialEvaluator`,
some through a registry and some directly; its task pipelines use the
`interaction_evaluator` middleware. Both are wrapped here, in a process that
runs a single trial, so nothing is ever unwrapped.

This module also runs in pods, where neither this package nor a new Python may be.
"""

from __future__ import annotations

import functools
import inspect
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

RETURN_KEY = "eval_episode_return"


@dataclass(frozen=True)
class Evaluation:
    """One evaluation: its metrics, a way to save the policy as it is now, and where it is from."""

    metrics: dict[str, float]
    save_checkpoint: Callable[[str], None] | None = None
    evaluator: Any = None
    outcome: Any = None
    """What the evaluator returned."""


if TYPE_CHECKING:  # Python 3.8 cannot subscript them
    Report = Callable[[Evaluation], None]
    Recall = Callable[[Any, int], Any]
    """Of an evaluator and `train_iter`: an outcome that is known already, or None."""


def install_hook(report: Report, recall: Recall = lambda evaluator, train_iter: None) -> None:
    """Have `report` called at every evaluation of this process.

    One that `recall` knows is neither made again nor reported.
    """
    from ding.worker.collector.base_serial_evaluator import ISerialEvaluator  # DI-engine

    hook = _Hook(report, recall)
    for cls in [ISerialEvaluator, *_below(ISerialEvaluator)]:
        hook.wrap_class(cls)
    # A user's own evaluator is often imported only when the config is compiled.
    ISerialEvaluator.__init_subclass__ = classmethod(lambda cls, **_: hook.wrap_class(cls))


def install_task_hook(report: Report) -> None:
    """Have `report` called by the evaluator middlewares of DI-engine's task pipelines."""
    from ding.framework.middleware.functional import evaluator  # DI-engine

    hook = _Hook(report, lambda evaluator, train_iter: None)
    for name in ("interaction_evaluator", "interaction_evaluator_ttorch"):
        original = getattr(evaluator, name)
        wrapped = hook.wrap_middleware(original)
        for module in list(sys.modules.values()):
            if getattr(module, "__dict__", {}).get(name) is original:
                setattr(module, name, wrapped)


class _Hook:
    def __init__(self, report: Report, recall: Recall) -> None:
        self._report = report
        self._recall = recall
        self._started = time.monotonic()
        self._depth = 0

    def wrap_class(self, cls: type) -> None:
        original = vars(cls).get("eval")
        if original is None or getattr(original, "__isabstractmethod__", False):
            return
        signature = inspect.signature(original)

        @functools.wraps(original)
        def evaluate(evaluator: Any, *args: Any, **kwargs: Any) -> Any:
            if self._depth:  # the super().eval() of a derived class
                return original(evaluator, *args, **kwargs)
            bound = signature.bind(evaluator, *args, **kwargs)
            bound.apply_defaults()
            known = self._recall(evaluator, _count(bound.arguments, "train_iter"))
            if known is not None:
                return known
            self._depth += 1
            try:
                outcome = original(evaluator, *args, **kwargs)
            finally:
                self._depth -= 1
            self._send(evaluator, bound.arguments, outcome)
            return outcome

        cls.eval = evaluate  # type: ignore[attr-defined]

    def wrap_middleware(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def factory(*args: Any, **kwargs: Any) -> Any:
            inner = original(*args, **kwargs)

            @functools.wraps(inner)
            def middleware(context: Any) -> Any:
                before = getattr(context, "eval_value", None), context.last_eval_iter
                outcome = inner(context)
                if (context.eval_value, context.last_eval_iter) != before:
                    self._send_context(context)
                return outcome

            return middleware

        return factory

    def _send(self, evaluator: Any, arguments: Mapping[str, Any], outcome: Any) -> None:
        info = outcome[1] if isinstance(outcome, tuple) and len(outcome) > 1 else outcome
        metrics = {
            **summarise(info),
            "env_step": _count(arguments, "envstep"),
            "train_iter": _count(arguments, "train_iter"),
            "time": time.monotonic() - self._started,
        }
        self._report(Evaluation(metrics, arguments.get("save_ckpt_fn"), evaluator, outcome))

    def _send_context(self, context: Any) -> None:
        metrics = {
            "eval_value": float(context.eval_value),
            "env_step": int(getattr(context, "env_step", 0)),
            "train_iter": int(context.train_iter),
            "time": time.monotonic() - self._started,
        }
        for end in ("std", "min", "max"):
            value = getattr(context, f"eval_value_{end}", None)
            if value is not None:
                metrics[f"eval_value_{end}"] = float(value)
        self._report(Evaluation(metrics))


def _count(arguments: Mapping[str, Any], name: str) -> int:
    return max(0, int(arguments.get(name, 0)))


def summarise(info: Any) -> dict[str, float]:
    """Turn what an evaluator returned into plain numbers.

    The episodes' returns become `eval_value` (their mean) and its spread; any
    other number, or list of them, that the environment reports is kept under its
    own name, as a mean.
    """
    if isinstance(info, Sequence) and info and all(isinstance(item, Mapping) for item in info):
        info = {key: [item.get(key) for item in info] for key in info[0]}
    if not isinstance(info, Mapping):
        return _spread(_numbers(info))
    metrics: dict[str, float] = {}
    for key, value in info.items():
        numbers = _numbers(value)
        if key == RETURN_KEY:
            metrics.update(_spread(numbers))
        elif numbers and not str(key).startswith(RETURN_KEY):
            metrics[str(key)] = float(np.mean(numbers))
    if "eval_value" not in metrics and len(metrics) == 1:  # a metric evaluator's only one
        metrics["eval_value"] = next(iter(metrics.values()))
    return metrics


def _spread(numbers: list[float]) -> dict[str, float]:
    if not numbers:
        return {}
    return {
        "eval_value": float(np.mean(numbers)),
        "eval_value_std": float(np.std(numbers)),
        "eval_value_min": float(np.min(numbers)),
        "eval_value_max": float(np.max(numbers)),
    }


def _numbers(value: Any) -> list[float]:
    try:
        if hasattr(value, "detach"):
            value = value.detach().cpu().numpy()
        return [float(item) for item in np.asarray(value, dtype=float).reshape(-1)]
    except (TypeError, ValueError):
        return []


def _below(cls: type) -> Iterator[type]:
    children: list[type] = cls.__subclasses__()
    for child in children:
        yield child
        yield from _below(child)
