"""What drives a sweep: its searcher and its scheduler, made of what the job says."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ray.tune.schedulers import TrialScheduler
from ray.tune.search import Searcher

from ditk_ray.config.engine_config import EngineConfig
from ditk_ray.config.job_spec import JobSpec
from ditk_ray.config.space import SearchSpace, is_grid
from ditk_ray.errors import BadConfigError, Problem
from ditk_ray.record.record import TrialRecord, TrialState, finite, read_record
from ditk_ray.record.sweep_folder import find_sweep
from ditk_ray.search.budget import derive_budget
from ditk_ray.search.points import Point, completed, grid_space, read_points, refusal
from ditk_ray.search.schedulers import (
    DEFAULT_SCHEDULER,
    build_scheduler,
    check_pairing,
    deciding_name,
    known_scheduler,
)
from ditk_ray.search.searchers import (
    DEFAULT_SEARCHER,
    SEARCHER_OPTIONS,
    ModelSearcher,
    build_searcher,
    check_options,
    known_searcher,
)

GRID = "grid"

RUN_AGAIN = 3
"""How many of the best are run first by a searcher that cannot learn of them."""

_GOOD = (TrialState.SUCCEEDED, TrialState.STOPPED)

EvaluatedPoint = tuple[Point, tuple[float, ...]]
"""The parameters of a trial and the values of its objectives."""


@dataclass(frozen=True)
class SearchSetup:
    """Where trials come from. Without a `searcher` the sweep draws them, `first` ones first.

    `space` is what is searched, for the searcher `grid` a grid of the job's. `searcher` is
    Tune's own or a user's, `note` what the user should know of a warm start.
    """

    space: SearchSpace
    searcher: Searcher | None = None
    first: tuple[Point, ...] = ()
    note: str = ""


def _check_names(job: JobSpec) -> None:
    searcher, scheduler = searcher_name(job), scheduler_name(job)
    if searcher is not None:
        known_searcher(searcher)
    if scheduler is not None:
        known_scheduler(scheduler)
    by_name = {
        "searcher": () if searcher else ("searcher_options", "known_points", "warm_start"),
        "scheduler": () if scheduler else ("scheduler_options",),
    }
    problems = [
        Problem(f"{job.name}.{field}", f"goes with a {kind} that is given by name")
        for kind, fields in by_name.items()
        for field in fields
        if getattr(job, field)
    ]
    if problems:
        raise BadConfigError(problems)
    if searcher is not None and scheduler is not None:
        check_pairing(searcher, deciding_name(scheduler, job.scheduler_options))


def searcher_name(job: JobSpec) -> str | None:
    """Return the searcher's name; None for a Tune object."""
    given = DEFAULT_SEARCHER if job.searcher is None else job.searcher
    return given if isinstance(given, str) else None


def scheduler_name(job: JobSpec) -> str | None:
    """Return the scheduler's name; None for a Tune object."""
    given = DEFAULT_SCHEDULER if job.scheduler is None else job.scheduler
    return given if isinstance(given, str) else None


def build_search(job: JobSpec, seed: int, storage: Path, is_resumed: bool = False) -> SearchSetup:
    """Return the source of a job's trials; `storage` is where earlier sweeps are found.

    With `is_resumed` the job was saved after it had been here before. Raises
    `BadConfigError`, also for a scheduler that does not fit.
    """
    _check_names(job)
    space, name = job.space, searcher_name(job)
    if name is None:
        own: Any = job.searcher
        if not is_resumed:  # else it was kept as one that knows its space and metric
            _introduce(own, job)
        return SearchSetup(space, own)
    if name == GRID:
        check_options(SEARCHER_OPTIONS, job.searcher_options, known_searcher(GRID).settings())
        space = grid_space(space, **job.searcher_options)
    objectives = [(item.metric, item.mode) for item in job.objectives]
    known = tuple(read_points(job.known_points, space))

    def build(points: Sequence[Point]) -> ModelSearcher | None:
        options = job.searcher_options
        return build_searcher(name, options, space, objectives, seed, points, job.num_samples)

    searcher = build(known)
    if job.warm_start is None:
        return SearchSetup(space, searcher, known)
    _refuse_grid(space)
    folder = find_sweep(job.warm_start, storage)
    trials = read_record(folder).trials.values()
    fitting = evaluated_points(trials, objectives, space, seed)
    if not fitting:
        what = f"{folder.name} has no finished trial with {job.metric!r} that lies in this space"
        raise BadConfigError(Problem("warm_start", what, "its parameters have to be the same"))
    again = teach(searcher, fitting, objectives)
    note = _note(folder.name, len(fitting), len(trials) - len(fitting), len(again))
    first = (*known, *again)
    return SearchSetup(space, build(first) if again else searcher, first, note)


def _introduce(searcher: Searcher, job: JobSpec) -> None:
    if not searcher.set_search_properties(job.metric, job.mode, job.space.tune_space()):
        what = "has a metric or a space of its own already"
        hint = "make it without: the JobCfg's metric, mode and space are used"
        raise BadConfigError(Problem(f"{job.name}.searcher", what, hint))


def _note(name: str, fitting: int, left_out: int, again: int) -> str:
    how = f"its best {again} are run again first" if again else f"{fitting} of its trials are known"
    rest = f"; {left_out} of its trials do not fit this space" if left_out else ""
    return f"warm start from {name}: {how}{rest}"


def _refuse_grid(space: SearchSpace) -> None:
    grids = [item.name for item in space.parameters if is_grid(item.domain)]
    if grids:
        what = f"a grid always runs in full, so a warm start has no effect: {', '.join(grids)}"
        hint = "leave the warm start out, or use a searcher that learns, such as 'tpe'"
        raise BadConfigError(Problem("warm_start", what, hint))


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


def evaluated_points(
    trials: Iterable[TrialRecord],
    objectives: Sequence[tuple[str, str]],
    space: SearchSpace,
    seed: int | None = None,
) -> list[EvaluatedPoint]:
    """Return what the trials of a sweep say of a space.

    A trial counts by its best evaluation, as in the summary. One that failed, has not ended,
    had its parameters changed on the way, or has not a value that is allowed for each parameter,
    and for no other, says nothing. Conditional parameters that it did not have are drawn.
    """
    found = []
    for trial in trials:
        given = [finite(trial.best_metrics.get(name)) for name, _ in objectives]
        values = tuple(value for value in given if value is not None)
        is_whole = trial.state in _GOOD and not trial.changes and len(values) == len(given)
        if is_whole and _fits(trial.params, space):
            found.append((trial.params, values))
    drawn = completed([params for params, _ in found], space, seed)
    return [(params, values) for params, (_, values) in zip(drawn, found, strict=True)]


def teach(
    searcher: ModelSearcher | None,
    points: Sequence[EvaluatedPoint],
    objectives: Sequence[tuple[str, str]],
) -> list[Point]:
    """Tell a searcher of earlier evaluations; return what is to be run first instead.

    That is nothing where the searcher can learn, and else the best few points, by the
    first objective.
    """
    if searcher is not None and searcher.can_learn:
        for params, values in points:
            searcher.learn(params, values)
        return []
    sign = -1 if objectives[0][1] == "max" else 1
    best = sorted(points, key=lambda point: sign * point[1][0])
    return [params for params, _ in best[:RUN_AGAIN]]


def _fits(params: Point, space: SearchSpace) -> bool:
    sampled = {item.name: item for item in space.parameters if item.is_sampled}
    needed = {name for name, item in sampled.items() if not item.conditions}
    return needed <= set(params) <= set(sampled) and not any(
        refusal(sampled[name], value) for name, value in params.items()
    )
