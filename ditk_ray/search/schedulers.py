"""Schedulers by name: which there are, and how one is built for a budget and a space."""

from __future__ import annotations

import math
from collections import ChainMap
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from ray.tune.experiment import Trial
from ray.tune.schedulers import (
    ASHAScheduler,
    FIFOScheduler,
    HyperBandForBOHB,
    HyperBandScheduler,
    MedianStoppingRule,
    PopulationBasedTraining,
    ResourceChangingScheduler,
    TrialScheduler,
)
from ray.tune.schedulers.async_hyperband import _Bracket
from ray.tune.schedulers.resource_changing_scheduler import DistributeResources

from ditk_ray.config.space import CREATE_PREFIX, SearchSpace
from ditk_ray.errors import BadConfigError, Problem
from ditk_ray.search.budget import Budget
from ditk_ray.search.points import Choice, Range, read_domain
from ditk_ray.search.searchers import SEARCHERS, check_options, settings_of
from ditk_ray.util.suggest import did_you_mean

DEFAULT_SCHEDULER = "fifo"
SCHEDULER_OPTIONS = "scheduler_options"
"""The field of a `JobCfg` that holds a scheduler's settings."""

_RESOURCE_CHANGING = "resource_changing"
_NO_BASES = (_RESOURCE_CHANGING, "bohb")
_REDUCTION = 3.0
_OURS = (
    *("time_attr", "metric", "mode"),
    *("hyperparam_mutations", "hyperparam_bounds", "custom_explore_fn"),
)
_PAUSING = (HyperBandScheduler, PopulationBasedTraining, ResourceChangingScheduler)
_BOUND_TO_WEIGHTS = ("policy.model.", CREATE_PREFIX)
"""Where parameters stand that a trial cannot change while it keeps its weights."""

_UNITS = "ditk_ray_budget_units"
"""The key under which HyperBand, and only it, sees a report's time."""


class HyperBand(HyperBandScheduler):
    """Tune's HyperBand in units of the grace period.

    Tune makes brackets of the number of time units until the end: with environment steps for
    units, these would be dozens of brackets, most of them for trials of a few steps. Counted in
    grace periods they are as many as there are decisions to make.
    """

    def __init__(self, counted: str, unit: float, **settings: Any) -> None:
        super().__init__(time_attr=_UNITS, **settings)
        self._counted = counted
        self._unit = unit

    def on_trial_result(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> str:
        """Decide on a trial; one that does not report its time continues."""
        if self._counted not in result:
            return str(TrialScheduler.CONTINUE)
        # Tune hands the scheduler a copy of its own, which the searcher sees next: BOHB's
        # part of HyperBand leaves its message to BOHB's searcher in it.
        result[_UNITS] = result[self._counted] / self._unit
        return str(super().on_trial_result(tune_controller, trial, result))


class HyperBandWithBohb(HyperBand, HyperBandForBOHB):
    """Tune's HyperBand for BOHB in the same units."""


class RankedASHA(ASHAScheduler):
    """Asynchronous successive halving, by ranks.

    At the first rung a trial continues if it is among the best `1 / reduction_factor` of all
    that came there, itself included; at the second among the best `1 / reduction_factor**2`
    of them, where a trial that was stopped before counts with its last score; and so on.
    Of equals, those that came first continue.

    Ray Tune's own goes by a percentile of those that came to the same rung. In RL that saves
    little: policies that have learned nothing score the same to the last digit and all reach
    the percentile, and the first trials of a sweep meet no others at the later rungs.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        for bracket in self._brackets:
            bracket.__class__ = _RankedBracket


class _RankedBracket(_Bracket):
    def on_result(self, trial: Trial, cur_iter: int, cur_rew: float) -> str:
        """Judge a trial at the last rung that it has come to, unless that was done."""
        for index, (milestone, recorded) in enumerate(self._rungs):  # the last one first
            if cur_iter < milestone:
                continue
            if trial.trial_id not in recorded:
                is_good = self._is_good(index, trial.trial_id, cur_rew)
                recorded[trial.trial_id] = cur_rew
                return str(TrialScheduler.CONTINUE if is_good else TrialScheduler.STOP)
            break
        return str(TrialScheduler.CONTINUE)

    def _is_good(self, index: int, trial: str, score: float) -> bool:
        known = ChainMap(*(recorded for _, recorded in self._rungs[index:]))
        others = [other for name, other in known.items() if name != trial]
        cuts = len(self._rungs) - index
        places = math.ceil((len(others) + 1) / self.rf**cuts)
        return bool(sum(other >= score for other in others) < places)


@dataclass(frozen=True)
class SchedulerOffer:
    """A scheduler by name; its options are those of the class `kind`, except what we set."""

    name: str
    summary: str
    kind: type | None
    """None is PB2, which imports scikit-learn: a second's work for every sweep."""

    def settings(self) -> dict[str, str]:
        """Return what its options may be, each with its type as text."""
        if self.name == _RESOURCE_CHANGING:
            bases = [item.settings() for item in SCHEDULERS.values() if item.name not in _NO_BASES]
            return {"base": "str"} | {name: kind for known in bases for name, kind in known.items()}
        own = {"grace_period": "int"} if self.kind is HyperBandScheduler else {}
        return {**settings_of(self.kind or _pb2(), without=_OURS), **own}


def _pb2() -> type:
    from ray.tune.schedulers.pb2 import PB2  # imports scikit-learn

    return PB2  # type: ignore[no-any-return]


_OFFERS = (
    ("fifo", "every trial to its end; the default", FIFOScheduler),
    ("asha", "stops the worse two thirds at ever later times; first choice", ASHAScheduler),
    ("hyperband", "asha in brackets that wait for each other, by pausing", HyperBandScheduler),
    ("bohb", "hyperband for the searcher bohb", HyperBandScheduler),
    ("median", "stops what stays below the median of the others", MedianStoppingRule),
    ("pbt", "bad trials copy good ones and change their parameters", PopulationBasedTraining),
    ("pb2", "pbt that chooses the changes by a Gaussian process; numbers only", None),
    (_RESOURCE_CHANGING, "gives running trials what is free; base=NAME", ResourceChangingScheduler),
)

SCHEDULERS: Mapping[str, SchedulerOffer] = {row[0]: SchedulerOffer(*row) for row in _OFFERS}
"""The schedulers that are offered, by name."""


def _build(
    name: str, options: Mapping[str, Any], budget: Budget, space: SearchSpace
) -> TrialScheduler:
    if name == DEFAULT_SCHEDULER:
        return FIFOScheduler()
    if name == _RESOURCE_CHANGING:
        base = deciding_name(name, options)
        options = {key: value for key, value in options.items() if key != "base"}
        check_options(SCHEDULER_OPTIONS, options, SCHEDULERS[base].settings())
        inner = _build(base, options, budget, space)
        return ResourceChangingScheduler(inner, DistributeResources(add_bundles=False))
    if name in ("pbt", "pb2"):
        return _population(name, options, budget, space)
    if name != "median":
        return _halving(name, options, budget)
    settings = {
        "grace_period": budget.grace_period(_REDUCTION),
        # Tune's rule pauses trials for others while it knows too few of them: that would
        # cost a restart each time and gain nothing, as the others get their turn anyway.
        "min_time_slice": math.inf,
        **options,
    }
    return MedianStoppingRule(time_attr=budget.time_attr, **settings)


def _halving(name: str, options: Mapping[str, Any], budget: Budget) -> TrialScheduler:
    factor = options.get("reduction_factor", _REDUCTION)
    settings = {
        "reduction_factor": factor,
        "grace_period": budget.grace_period(factor) if factor > 1 else 1,
        "max_t": budget.max_t,
        # A trial that gets to its end leaves its result, which one that is stopped does not.
        "stop_last_trials": False,
        **options,
    }
    if name == "asha":
        return RankedASHA(time_attr=budget.time_attr, **settings)
    unit = settings.pop("grace_period")
    if unit <= 0:
        raise ValueError("grace_period has to be more than 0")
    if factor <= 1:
        raise ValueError("reduction_factor has to be more than 1")
    settings["max_t"] = math.ceil(settings["max_t"] / unit)
    kind = HyperBand if name == "hyperband" else HyperBandWithBohb
    return kind(counted=budget.time_attr, unit=unit, **settings)


def _population(
    name: str, options: Mapping[str, Any], budget: Budget, space: SearchSpace
) -> TrialScheduler:
    found = _changeable(space)
    numbers = {key: known for key, (_, known) in found.items() if isinstance(known, Range)}
    if not (found if name == "pbt" else numbers):
        missing = "no range and no choice" if name == "pbt" else "no range of numbers"
        what = f"{name!r} changes parameters of running trials, but {missing} can be changed"
        hint = "the network (policy.model) and create_config stay as they are in a running trial"
        raise BadConfigError(Problem("scheduler", what, hint))
    settings = {
        "time_attr": budget.time_attr,
        "perturbation_interval": max(2 * budget.interval, (budget.max_t or 0) / 10),
        "custom_explore_fn": partial(keep_inside, numbers),
        **options,
    }
    if name == "pbt":
        changed = {
            key: domain if key in numbers else list(known.ends)  # choices to step through
            for key, (domain, known) in found.items()
        }
        return PopulationBasedTraining(hyperparam_mutations=changed, **settings)
    bounds = {name: [item.lower, item.upper] for name, item in numbers.items()}
    built: TrialScheduler = _pb2()(hyperparam_bounds=bounds, **settings)
    return built


def _changeable(space: SearchSpace) -> dict[str, tuple[Any, Range | Choice]]:
    return {
        item.name: (item.domain, known)
        for item in space.parameters
        if not item.name.startswith(_BOUND_TO_WEIGHTS)
        and (known := read_domain(item.domain)) is not None
    }


def keep_inside(ranges: Mapping[str, Range], config: dict[str, Any]) -> dict[str, Any]:
    """Bring what a mutation made of the parameters back into their ranges.

    Tune multiplies by 1.2 or 0.8, whatever the bounds: a discount factor would pass 1.
    """
    known = {name: found for name, found in ranges.items() if name in config}
    return config | {name: found.decoded(config[name]) for name, found in known.items()}


def known_scheduler(name: str) -> SchedulerOffer:
    if name not in SCHEDULERS:
        hint = did_you_mean(str(name), SCHEDULERS)
        raise BadConfigError(Problem("scheduler", f"there is no {name!r}", hint))
    return SCHEDULERS[name]


def deciding_name(name: str, options: Mapping[str, Any]) -> str:
    """Return the name of the scheduler that decides on trials: for `resource_changing` its base.

    Raises `BadConfigError` if that cannot be one.
    """
    if name != _RESOURCE_CHANGING:
        return name
    base = str(options.get("base", "asha"))
    if base in _NO_BASES:
        raise BadConfigError(Problem(f"{SCHEDULER_OPTIONS}.base", f"cannot be {base!r}"))
    return known_scheduler(base).name


def base_of(scheduler: Any) -> Any:
    """Return the scheduler that decides on trials, which may be inside another one."""
    if isinstance(scheduler, ResourceChangingScheduler):
        return scheduler._base_scheduler
    return scheduler


def build_scheduler(
    name: str, options: Mapping[str, Any], budget: Budget, space: SearchSpace
) -> TrialScheduler:
    """Return a scheduler for trials of this budget; Tune tells it the metric.

    Raises a `BadConfigError` with all mistakes of the same kind, before anything starts.
    """
    offer = known_scheduler(name)
    check_options(SCHEDULER_OPTIONS, options, offer.settings())
    budget = replace(budget, max_t=options.get("max_t", budget.max_t))
    if name != DEFAULT_SCHEDULER and budget.max_t is None:
        what = f"{name!r} divides a trial's length, but the trials have no limit"
        hint = "set max_env_step in the JobCfg (or max_train_iter)"
        raise BadConfigError(Problem("scheduler", what, hint))
    try:
        return _build(name, options, budget, space)
    except (TypeError, ValueError, ArithmeticError, AssertionError, RuntimeError) as error:
        raise BadConfigError(Problem(f"scheduler {name!r}", f"refuses: {error}")) from error


def needs_checkpoints(scheduler: Any) -> bool:
    """Say whether a scheduler pauses trials: without a checkpoint they would start from scratch."""
    if isinstance(scheduler, MedianStoppingRule):
        return not (scheduler._hard_stop and math.isinf(scheduler._min_time_slice))
    return isinstance(scheduler, _PAUSING)


def checkpoints_kept(scheduler: Any) -> int:
    """Return how many checkpoints a trial keeps.

    One is enough to resume, and the one before in case the last is cut short. Where trials
    resume from each other's, one may be fetched long after it was written.
    """
    return 20 if isinstance(base_of(scheduler), PopulationBasedTraining) else 2


def wants_all_trials(scheduler: Any) -> bool:
    """Say whether a scheduler compares trials that wait for each other.

    It has to know them all from the start, and lets as many run as the resources hold: with
    a few at a time, each bracket and each population would be of so few only.
    """
    base = base_of(scheduler)
    if isinstance(base, HyperBandForBOHB):  # whose searcher fills it
        return False
    return isinstance(base, (HyperBandScheduler, PopulationBasedTraining))


def allows_actor_reuse(scheduler: Any) -> bool:
    """Say whether a trial may take over the actor of another: not if actors differ in size."""
    return not isinstance(scheduler, ResourceChangingScheduler)


def check_pairing(searcher: str, scheduler: str) -> None:
    """Raise a `BadConfigError` if a searcher cannot work with a scheduler, both by name."""
    if (searcher == "bohb") != (scheduler == "bohb"):
        what = "the searcher 'bohb' and the scheduler 'bohb' only work together"
        raise BadConfigError(Problem("searcher", what, "use both, or another pair of them"))
    if scheduler in ("pbt", "pb2") and SEARCHERS[searcher].module is not None:
        how = "changes parameters on the way"
        what = f"{scheduler!r} {how}; {searcher!r} would learn from wrong parameters"
        raise BadConfigError(Problem("searcher", what, "use the searcher 'random' with it"))
    if scheduler == "hyperband" and SEARCHERS[searcher].module is not None:
        what = f"'hyperband' runs all at once, so {searcher!r} cannot learn from finished trials"
        raise BadConfigError(Problem("searcher", what, "use 'asha' with it, or 'bohb' for both"))
