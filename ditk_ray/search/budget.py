"""How long a trial is, and how often it is evaluated, on the schedulers' time axis."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ditk_ray.config.engine_config import EngineConfig
from ditk_ray.config.space import SearchSpace
from ditk_ray.search.points import read_domain
from ditk_ray.util import dotted

_PATHS = (
    "policy.eval.evaluator.eval_freq",
    "policy.collect.n_sample",
    "policy.learn.update_per_collect",
    "policy.learn.epoch_per_collect",
    "policy.learn.batch_size",
)
"""What the time between evaluations depends on, as `_interval` takes it."""


@dataclass(frozen=True)
class Budget:
    """A trial's length `max_t`, and how much of it lies between two evaluations.

    Both count `time_attr`, a key of every report. Without a limit there is no `max_t`, and
    then no schedule.
    """

    max_t: int | None = None
    time_attr: str = "env_step"
    eval_interval: float | None = None

    @property
    def interval(self) -> float:
        """The time between evaluations; where the config does not reveal it, a twentieth."""
        return self.eval_interval or (self.max_t or 1) / 20

    def grace_period(self, reduction: float) -> int:
        """Return how old a trial is when it is first compared with others.

        Three evaluations, as one alone says little in RL. Not less than what leaves two
        decisions until the end, each `reduction` times as late as the one before: agents
        explore at first, and earlier scores are noise. And never so late that nothing is saved.
        """
        if self.max_t is None:
            raise ValueError("without an end there is no share of it")
        wanted = max(3 * self.interval, self.max_t / reduction**2)
        latest = max(self.max_t / reduction, self.interval)
        return max(1, min(self.max_t, math.ceil(min(wanted, latest))))


def derive_budget(
    defaults: EngineConfig,
    space: SearchSpace,
    max_env_step: int | None = None,
    max_train_iter: int | None = None,
) -> Budget:
    """Return the budget of a job's trials.

    It counts iterations only where they alone are limited: a length that is given as a
    setting of the scheduler is one of environment steps.

    `defaults` is the config with all of DI-engine's defaults. Where the space varies what
    the time between evaluations depends on, the longest one counts.
    """
    in_steps = max_env_step is not None or max_train_iter is None
    choices = [_possible(path, defaults, space) for path in _PATHS]
    on_policy = bool(dotted.find(defaults.main, "policy.on_policy"))
    intervals = [_interval(on_policy, in_steps, *each) for each in itertools.product(*choices)]
    longest = max((interval for interval in intervals if interval is not None), default=None)
    if in_steps:
        return Budget(max_env_step, "env_step", longest)
    return Budget(max_train_iter, "train_iter", longest)


def _interval(
    on_policy: bool,
    in_steps: bool,
    frequency: Any,
    samples: Any,
    updates: Any,
    epochs: Any,
    batch: Any,
) -> float | None:
    """Return the time between evaluations: DI-engine evaluates every `frequency` iterations.

    It trains in rounds: a number of samples is collected, then trained on for some iterations.
    A config that collects whole episodes does not reveal how many steps they take. Collectors
    that complete trajectories take up to a third more than this.
    """
    if not _is_amount(frequency):
        return None
    if on_policy and _is_amount(samples) and _is_amount(batch):
        iterations = (epochs if _is_amount(epochs) else 1) * math.ceil(samples / batch)
    elif _is_amount(updates):
        iterations = updates
    else:
        return None if in_steps else float(frequency)
    rounds = math.ceil(frequency / iterations)
    if not in_steps:
        return float(rounds * iterations)
    return float(rounds * samples) if _is_amount(samples) else None


def _possible(path: str, defaults: EngineConfig, space: SearchSpace) -> Sequence[Any]:
    for item in space.parameters:
        if item.name == path:
            known = read_domain(item.domain)
            return known.ends if known is not None else (item.domain,)
    return (dotted.find(defaults.main, path),)


def _is_amount(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0
