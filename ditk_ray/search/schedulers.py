"""Schedulers by name: which there are, and how one is built for a budget and a space."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

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
from ray.tune.schedulers.pb2 import PB2
from ray.tune.schedulers.resource_changing_scheduler import DistributeResources

from ditk_ray.config.nearest import did_you_mean
from ditk_ray.config.space import SearchSpace
from ditk_ray.errors import BadConfigError, Problem
from ditk_ray.search.budget import Budget
from ditk_ray.search.hyperband import HyperBand, HyperBandWithBohb
from ditk_ray.search.options import check_options, settings_of
from ditk_ray.search.population import KeepInside, mutations, ranges
from ditk_ray.search.ranked_asha import RankedASHA

DEFAULT_SCHEDULER = "fifo"
OPTIONS = "scheduler_options"
"""The field of a `JobCfg` that holds a scheduler's settings."""

_RESOURCE_CHANGING = "resource_changing"
_NO_BASES = {
    _RESOURCE_CHANGING: "has to be another scheduler",
    "bohb": "cannot be 'bohb', which has to talk to the searcher itself",
}
_REDUCTION = 3.0
_MOST_EXPLOITS = 10
_EVALUATIONS_BETWEEN_EXPLOITS = 2
_OURS = ("time_attr", "metric", "mode")
_PAUSING = (HyperBandScheduler, PopulationBasedTraining, ResourceChangingScheduler)


@dataclass(frozen=True)
class SchedulerRequest:
    """What a scheduler is built from."""

    options: Mapping[str, Any]
    budget: Budget
    space: SearchSpace

    def rungs(self) -> dict[str, Any]:
        """Return the settings by which trials are compared at ever later times."""
        factor = self.options.get("reduction_factor", _REDUCTION)
        grace = self.budget.grace_period(factor) if factor > 1 else 1
        max_t = self.budget.max_t
        return {"reduction_factor": factor, "grace_period": grace, "max_t": max_t}

    def exploit_interval(self) -> float:
        """Return the time between exploits: evaluations have to tell, and weights to settle."""
        shortest = (self.budget.max_t or 0) / _MOST_EXPLOITS
        return max(_EVALUATIONS_BETWEEN_EXPLOITS * self.budget.interval, shortest)


@dataclass(frozen=True)
class SchedulerOffer:
    """A scheduler by name, with what its options may be."""

    name: str
    summary: str
    build: Callable[[SchedulerRequest], TrialScheduler]
    settings: Callable[[], dict[str, str]]
    needs_budget: bool = True


def _fifo(request: SchedulerRequest) -> TrialScheduler:
    return FIFOScheduler()


def _asha(request: SchedulerRequest) -> TrialScheduler:
    # A trial that gets to its end leaves its result, which one that is stopped does not.
    settings = {**request.rungs(), "stop_last_trials": False, **request.options}
    return RankedASHA(time_attr=request.budget.time_attr, **settings)


def _hyperband(request: SchedulerRequest) -> TrialScheduler:
    return HyperBand(**_in_units(request))


def _bohb(request: SchedulerRequest) -> TrialScheduler:
    return HyperBandWithBohb(**_in_units(request))


def _in_units(request: SchedulerRequest) -> dict[str, Any]:
    settings = {**request.rungs(), "stop_last_trials": False, **request.options}
    unit = settings.pop("grace_period")
    if unit <= 0:
        raise ValueError("grace_period has to be more than 0")
    if settings["reduction_factor"] <= 1:
        raise ValueError("reduction_factor has to be more than 1")
    settings["max_t"] = math.ceil(settings["max_t"] / unit)
    return {"counted": request.budget.time_attr, "unit": unit, **settings}


def _median(request: SchedulerRequest) -> TrialScheduler:
    settings = {
        "grace_period": request.budget.grace_period(_REDUCTION),
        # Tune's rule pauses trials for others while it knows too few of them: that would
        # cost a restart each time and gain nothing, as the others get their turn anyway.
        "min_time_slice": math.inf,
        **request.options,
    }
    return MedianStoppingRule(time_attr=request.budget.time_attr, **settings)


def _pbt(request: SchedulerRequest) -> TrialScheduler:
    found = _required(mutations(request.space), "pbt", "no range and no choice")
    settings = {"perturbation_interval": request.exploit_interval(), **request.options}
    return PopulationBasedTraining(
        time_attr=request.budget.time_attr,
        hyperparam_mutations=found,
        custom_explore_fn=KeepInside(ranges(request.space)),
        **settings,
    )


def _pb2(request: SchedulerRequest) -> TrialScheduler:
    found = _required(ranges(request.space), "pb2", "no range of numbers")
    settings = {"perturbation_interval": request.exploit_interval(), **request.options}
    return PB2(
        time_attr=request.budget.time_attr,
        hyperparam_bounds={name: [item.lower, item.upper] for name, item in found.items()},
        custom_explore_fn=KeepInside(found),
        **settings,
    )


def _required(found: dict[str, Any], name: str, missing: str) -> dict[str, Any]:
    if not found:
        what = f"{name!r} changes parameters of running trials, and {missing} can be changed"
        hint = "the network (policy.model) and create_config stay as they are in a running trial"
        raise BadConfigError(Problem("scheduler", what, hint))
    return found


def _resource_changing(request: SchedulerRequest) -> TrialScheduler:
    base = SCHEDULERS[deciding_name(_RESOURCE_CHANGING, request.options)]
    options = {key: value for key, value in request.options.items() if key != "base"}
    check_options(OPTIONS, options, base.settings())
    inner = base.build(replace(request, options=options))
    return ResourceChangingScheduler(inner, DistributeResources(add_bundles=False))


def _settings(kind: type, *without: str, **more: str) -> Callable[[], dict[str, str]]:
    return lambda: {**settings_of(kind, without=(*_OURS, *without)), **more}


def _resource_settings() -> dict[str, str]:
    bases = [item.settings() for item in SCHEDULERS.values() if item.name not in _NO_BASES]
    return {"base": "str"} | {name: kind for known in bases for name, kind in known.items()}


_EXPLORING = ("hyperparam_mutations", "hyperparam_bounds", "custom_explore_fn")
_OFFERS = (
    SchedulerOffer("fifo", "every trial to its end; the default", _fifo, dict, needs_budget=False),
    SchedulerOffer(
        "asha",
        "stops the worse two thirds at ever later times; first choice",
        _asha,
        _settings(ASHAScheduler),
    ),
    SchedulerOffer(
        "hyperband",
        "asha in brackets that wait for each other, by pausing",
        _hyperband,
        _settings(HyperBandScheduler, grace_period="int"),
    ),
    SchedulerOffer(
        "bohb",
        "hyperband for the searcher bohb",
        _bohb,
        _settings(HyperBandScheduler, grace_period="int"),
    ),
    SchedulerOffer(
        "median",
        "stops what stays below the median of the others",
        _median,
        _settings(MedianStoppingRule),
    ),
    SchedulerOffer(
        "pbt",
        "bad trials take over good ones' weights, with changed parameters",
        _pbt,
        _settings(PopulationBasedTraining, *_EXPLORING),
    ),
    SchedulerOffer(
        "pb2",
        "pbt that chooses the changes by a Gaussian process; numbers only",
        _pb2,
        _settings(PB2, *_EXPLORING),
    ),
    SchedulerOffer(
        _RESOURCE_CHANGING,
        "gives what is free to running trials; base=NAME decides (asha)",
        _resource_changing,
        _resource_settings,
    ),
)

SCHEDULERS: Mapping[str, SchedulerOffer] = MappingProxyType({item.name: item for item in _OFFERS})
"""The schedulers that are offered, by name."""


def known_scheduler(name: str) -> SchedulerOffer:
    """Return the offer of this name, or raise a `BadConfigError` with the nearest ones."""
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
        raise BadConfigError(Problem(f"{OPTIONS}.base", _NO_BASES[base]))
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
    check_options(OPTIONS, options, offer.settings())
    budget = replace(budget, max_t=options.get("max_t", budget.max_t))
    if offer.needs_budget and budget.max_t is None:
        what = f"{name!r} divides a trial's length into parts, and it has no end"
        hint = "set max_env_step in the JobCfg (or max_train_iter)"
        raise BadConfigError(Problem("scheduler", what, hint))
    try:
        return offer.build(SchedulerRequest(options, budget, space))
    except (TypeError, ValueError, ArithmeticError, AssertionError, RuntimeError) as error:
        raise BadConfigError(Problem(f"scheduler {name!r}", f"refuses: {error}")) from error


def needs_checkpoints(scheduler: Any) -> bool:
    """Say whether a scheduler pauses trials: without a checkpoint they would start anew."""
    if isinstance(scheduler, MedianStoppingRule):
        return not (scheduler._hard_stop and math.isinf(scheduler._min_time_slice))
    return isinstance(scheduler, _PAUSING)


def checkpoints_kept(scheduler: Any) -> int:
    """Return how many checkpoints a trial keeps.

    One is enough to go on, and the one before in case the last is cut short. Where
    trials go on from each other's, one may be fetched long after it was written.
    """
    return 20 if isinstance(base_of(scheduler), PopulationBasedTraining) else 2


def wants_all_trials(scheduler: Any) -> bool:
    """Say whether a scheduler compares trials that wait for each other.

    It has to know them all from the start, and lets as many run as the resources hold: with
    a few at a time, each bracket and each population would be of so few only.
    """
    base = base_of(scheduler)
    is_banded = isinstance(base, HyperBandScheduler)
    is_filled_by_searcher = isinstance(base, HyperBandForBOHB)
    return isinstance(base, PopulationBasedTraining) or (is_banded and not is_filled_by_searcher)


def allows_actor_reuse(scheduler: Any) -> bool:
    """Say whether a trial may take over the actor of another: not if actors differ in size."""
    return not isinstance(scheduler, ResourceChangingScheduler)
