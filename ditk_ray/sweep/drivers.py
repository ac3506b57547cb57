"""What drives a sweep: its searcher and its scheduler, made of what the job says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ray.tune.schedulers import TrialScheduler
from ray.tune.search import Searcher

from ditk_ray.config.engine_config import EngineConfig
from ditk_ray.config.job_spec import JobSpec
from ditk_ray.config.space import SearchSpace, is_grid
from ditk_ray.errors import BadConfigError, Problem
from ditk_ray.search.budget import derive_budget
from ditk_ray.search.grid import grid_space
from ditk_ray.search.model_searcher import ModelSearcher
from ditk_ray.search.options import check_options
from ditk_ray.search.pairing import check_pairing
from ditk_ray.search.points import Point, read_points
from ditk_ray.search.schedulers import (
    DEFAULT_SCHEDULER,
    build_scheduler,
    deciding_name,
    known_scheduler,
)
from ditk_ray.search.searcher_request import OPTIONS
from ditk_ray.search.searchers import DEFAULT_SEARCHER, build_searcher, known_searcher
from ditk_ray.search.warm_start import evaluated_points, fitting_points, teach
from ditk_ray.tracking.folders import find_sweep
from ditk_ray.tracking.record import read_record

GRID = "grid"


@dataclass(frozen=True)
class SearchDriver:
    """Where trials come from. Without a `searcher` the sweep draws them, `first` ones first.

    `space` is what is searched, for the searcher `grid` a grid of the job's. `searcher` is
    Tune's own or a user's, `note` what the user should know of a warm start.
    """

    space: SearchSpace
    searcher: Searcher | None = None
    first: tuple[Point, ...] = ()
    note: str = ""


def _searched_space(job: JobSpec) -> SearchSpace:
    """Return the space that trials are drawn from: for the searcher `grid`, a grid of it."""
    if job.searcher != GRID:
        return job.space
    check_options(OPTIONS, job.searcher_options, known_searcher(GRID).settings())
    return grid_space(job.space, **job.searcher_options)


def _check_drivers(job: JobSpec) -> None:
    """Raise `BadConfigError` if the job's searcher and scheduler are not known or do not fit."""
    searcher, scheduler = searcher_name(job), scheduler_name(job)
    if searcher is not None:
        known_searcher(searcher)
    else:
        _refuse_with_instance(job, "searcher", ("searcher_options", "known_points", "warm_start"))
    if scheduler is not None:
        known_scheduler(scheduler)
    else:
        _refuse_with_instance(job, "scheduler", ("scheduler_options",))
    if searcher is not None and scheduler is not None:
        check_pairing(searcher, deciding_name(scheduler, job.scheduler_options))


def searcher_name(job: JobSpec) -> str | None:
    """Return the searcher's name; None for a Tune object."""
    return _name(job.searcher, DEFAULT_SEARCHER)


def scheduler_name(job: JobSpec) -> str | None:
    """Return the scheduler's name; None for a Tune object."""
    return _name(job.scheduler, DEFAULT_SCHEDULER)


def build_search(job: JobSpec, seed: int, storage: Path, goes_on: bool = False) -> SearchDriver:
    """Return the source of a job's trials; `storage` is where earlier sweeps are found.

    The job of a sweep that `goes_on` was kept after it had been here before. Raises
    `BadConfigError`, also for a scheduler that does not fit.
    """
    _check_drivers(job)
    space, name = _searched_space(job), searcher_name(job)
    if name is None:
        if not goes_on:  # it was kept as one that knows its space and metric
            _introduce(job.searcher, job)
        return SearchDriver(space, job.searcher)
    objectives = [(item.metric, item.mode) for item in job.objectives]
    known = read_points(job.known_points, space)

    def build(points: Sequence[Point]) -> ModelSearcher | None:
        options = job.searcher_options
        return build_searcher(name, options, space, objectives, seed, points, job.num_samples)

    searcher = build(known)
    if job.warm_start is None:
        return SearchDriver(space, searcher, tuple(known))
    _refuse_grid(space)
    folder = find_sweep(job.warm_start, storage)
    rows = [asdict(trial) for trial in read_record(folder).trials.values()]
    fitting = fitting_points(evaluated_points(rows, objectives), space, seed)
    if not fitting:
        what = f"{folder.name} has no finished trial with {job.metric!r} that lies in this space"
        raise BadConfigError(Problem("warm_start", what, "its parameters have to be the same"))
    again = teach(searcher, fitting, objectives)
    first = (*known, *again)
    note = _note(folder.name, len(fitting), len(rows) - len(fitting), len(again))
    return SearchDriver(space, build(first) if again else searcher, first, note)


def _refuse_grid(space: SearchSpace) -> None:
    """Refuse a warm start where nothing could follow from it."""
    grids = [item.name for item in space.parameters if is_grid(item.domain)]
    if grids:
        what = f"a grid is gone through whole, whatever is known of it: {', '.join(grids)}"
        hint = "leave the warm start out, or use a searcher that learns, such as 'tpe'"
        raise BadConfigError(Problem("warm_start", what, hint))


def _introduce(searcher: Searcher, job: JobSpec) -> None:
    """Tell a user's own searcher what it searches and what for."""
    if not searcher.set_search_properties(job.metric, job.mode, job.space.tune_space()):
        what = "has a metric or a space of its own already"
        hint = "make it without: the JobCfg's metric, mode and space are used"
        raise BadConfigError(Problem(f"{job.name}.searcher", what, hint))


def build_schedule(job: JobSpec, space: SearchSpace, defaults: EngineConfig) -> TrialScheduler:
    """Return the job's scheduler; `defaults` is the config with all that DI-engine adds.

    Raises `BadConfigError`.
    """
    name = scheduler_name(job)
    if name is None:
        own: TrialScheduler = job.scheduler
        return own
    budget = derive_budget(defaults, space, job.max_env_step, job.max_train_iter)
    return build_scheduler(name, job.scheduler_options, budget, space)


def _name(given: Any, default: str) -> str | None:
    if given is None:
        return default
    return given if isinstance(given, str) else None


def _refuse_with_instance(job: JobSpec, kind: str, fields: tuple[str, ...]) -> None:
    problems = [
        Problem(f"{job.name}.{field}", f"goes with a {kind} that is given by name")
        for field in fields
        if getattr(job, field)
    ]
    if problems:
        raise BadConfigError(problems)


def _note(name: str, fitting: int, left_out: int, again: int) -> str:
    how = f"its best {again} are run again first" if again else f"{fitting} of its trials are known"
    rest = f"; {left_out} of its trials say nothing here" if left_out else ""
    return f"warm start from {name}: {how}{rest}"
