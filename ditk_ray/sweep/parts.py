"""What drives a sweep, made from what its job says: space, searcher, scheduler, stopper."""

from __future__ import annotations

from dataclasses import dataclass

from ray.tune.schedulers import TrialScheduler
from ray.tune.search import Searcher

from ditk_ray.config.engine_config import EngineConfig
from ditk_ray.config.job_spec import JobSpec
from ditk_ray.config.space import SearchSpace
from ditk_ray.search.points import Point
from ditk_ray.search.stoppers import RuleStopper, build_stopper
from ditk_ray.sweep.drivers import SearchDriver, build_schedule


@dataclass(frozen=True)
class SweepParts:
    """The parts that Ray Tune is driven by."""

    space: SearchSpace
    searcher: Searcher | None
    """None: trials are drawn from the space by chance, or go through its grids."""
    first: tuple[Point, ...]
    """What is tried before anything is drawn."""
    note: str
    scheduler: TrialScheduler
    stopper: RuleStopper | None


def build_parts(job: JobSpec, search: SearchDriver, defaults: EngineConfig) -> SweepParts:
    """Put all of them together; `defaults` is the config with everything that DI-engine adds.

    Raises `BadConfigError`.
    """
    return SweepParts(
        search.space,
        search.searcher,
        search.first,
        search.note,
        build_schedule(job, search.space, defaults),
        build_stopper(job.stopper, job.metric, job.mode, job.more_objectives, len(job.seeds)),
    )
