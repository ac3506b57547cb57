"""Checking a sweep as a whole before anything of it runs."""

from __future__ import annotations

import contextlib
import re
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Literal

from ditk_ray.config.config_file import EntryCall
from ditk_ray.config.job_spec import JobSpec
from ditk_ray.config.python_file import FILE_MODULE_PREFIX
from ditk_ray.config.resources import TrialResources
from ditk_ray.config.space import is_grid
from ditk_ray.config.space_check import KnownPaths, check_space
from ditk_ray.errors import BadConfigError, DitkRayError, Problem
from ditk_ray.search.schedulers import needs_checkpoints
from ditk_ray.search.stoppers import build_stopper
from ditk_ray.sweep.nodes import Node, cluster_nodes, count_slots, share_nodes, this_machine
from ditk_ray.sweep.ray_session import remote_ray, require_shared_folder
from ditk_ray.tracking.recorder import TrackingOptions
from ditk_ray.tracking.store import NOWHERE
from ditk_ray.trial.inspection import inspect_experiment
from ditk_ray.trial.spec import TrialPlan
from ditk_ray.trial.warm_node import WarmNode

_LAST_SECONDS = 3.0
"""How long after the sweep's end its trials wait for Tune, which stops them, to do so."""

_NAME = re.compile(r"[\w][\w.+-]*")


@dataclass(frozen=True)
class SweepOptions:
    """What the command line says besides the job itself."""

    name: str | None = None
    storage_path: Path = Path("ditk_ray_results")
    run_mode: Literal["local", "remote"] = "local"
    ray_address: str | None = None
    num_workers_per_node: int | None = None
    seed: int | None = None
    mlflow_uri: str = NOWHERE
    """Where it is recorded: MLflow's URI, `embedded` or `none`."""
    mlflow_experiment: str | None = None
    mlflow_checkpoints: Literal["none", "best", "all"] = "best"
    command: tuple[str, ...] = ()
    """How it was started, for the record."""


@dataclass(frozen=True)
class PreparedSweep:
    """A sweep that was checked and can start: nothing of it runs yet."""

    job: JobSpec
    options: SweepOptions
    name: str
    folder: Path
    nodes: tuple[Node, ...]
    resources: TrialResources
    slots: int
    warm_key: str

    @property
    def concurrency(self) -> int:
        """How many trials run at once."""
        return min(self.slots, self.job.max_concurrent or self.slots, self.trial_count)

    @property
    def trial_count(self) -> int:
        """How many trials there will be: the grid's points, `num_samples` times."""
        count = self.job.num_samples
        for parameter in self.job.space.parameters:
            if is_grid(parameter.domain):
                count *= len(parameter.domain["grid_search"])
        return count

    @property
    def checkpoints(self) -> bool:
        """Whether trials keep checkpoints: by wish, or because the scheduler needs them."""
        return self.job.checkpoints or needs_checkpoints(self.job.scheduler)

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds of each trial; the sweep's own seed moves those that were only counted."""
        return _seeds(self.job, self.options)

    @property
    def tracking(self) -> TrackingOptions | None:
        """Where the sweep is recorded besides its folder."""
        if self.options.mlflow_uri == NOWHERE:
            return None
        seeds = ", ".join(str(seed) for seed in self.seeds)
        return TrackingOptions(
            self.options.mlflow_uri,
            self.options.mlflow_experiment or self.job.name,
            self.options.mlflow_checkpoints,
            trial_tags={"seed": seeds, "backend": self.job.backend},
        )

    def trial_plan(self) -> TrialPlan:
        """Return what the workers have to know; the sweep's time starts now."""
        job = self.job
        return TrialPlan(
            base=job.config,
            space=job.space,
            entry=job.entry,
            entry_args=job.entry_args,
            limits=_limits(job),
            seeds=self.seeds,
            resources=self.resources,
            sweep_folder=self.folder,
            warm_key=self.warm_key,
            max_seconds=job.max_trial_time,
            ends_at=time.time() + job.max_time + _LAST_SECONDS if job.max_time else None,
            checkpoints=self.checkpoints,
            python_path=_python_path(job),
            entry_home=_entry_home(job),
            metric=job.metric,
        )


@contextlib.contextmanager
def prepared_sweep(job: JobSpec, options: SweepOptions, warm: WarmNode) -> Iterator[PreparedSweep]:
    """Check everything that can be checked, and hold what the run will need.

    `warm` is this node's fork server, which the checks ask and the trials use.
    With `run_mode` remote the process stays connected to the cluster until the
    context ends. Raises a `DitkRayError` that says what is wrong; nothing was
    created then.
    """
    name = options.name or f"{job.name}_{datetime.now():%Y%m%d_%H%M%S}"
    folder = _free_folder(options.storage_path, name)
    build_stopper(job.stopper)
    with contextlib.ExitStack() as stack:
        nodes = [this_machine()]
        if options.run_mode == "remote":
            stack.enter_context(remote_ray(options.ray_address))
            nodes = cluster_nodes()
        resources = job.resources
        if options.num_workers_per_node:
            resources = share_nodes(resources, nodes, options.num_workers_per_node)
        slots = count_slots(resources, nodes)
        _check_with_engine(job, options, warm)
        yield PreparedSweep(job, options, name, folder, tuple(nodes), resources, slots, warm.key)


def make_folder(sweep: PreparedSweep) -> None:
    """Create the sweep's folder; raises `BadConfigError` if it cannot be used."""
    try:
        sweep.folder.mkdir(parents=True)
    except OSError as error:
        problem = Problem(f"--storage_path {sweep.folder.parent}", f"cannot be written: {error}")
        raise BadConfigError(problem) from error
    if len(sweep.nodes) > 1:
        try:
            require_shared_folder(sweep.folder)
        except DitkRayError:
            sweep.folder.rmdir()
            raise


def _check_with_engine(job: JobSpec, options: SweepOptions, warm: WarmNode) -> None:
    warm.join()
    warm.preload(job.config.environment_modules)
    seed = _seeds(job, options)[0]
    call = EntryCall(job.entry, {"seed": seed, **_limits(job), **job.entry_args})
    inspection = inspect_experiment(warm, job.config, call, _python_path(job))
    problems = list(inspection.problems)
    if not problems:
        problems = check_space(job.space, KnownPaths(job.config, inspection.defaults))
    if problems:
        raise BadConfigError(
            Problem(f"{job.name}: {item.where}", item.what, item.hint) for item in problems
        )


def _free_folder(storage: Path, name: str) -> Path:
    if not _NAME.fullmatch(name):
        what = "has to be letters, digits, and . _ + - only"
        raise BadConfigError(Problem(f"--name {name}", what))
    folder = storage.expanduser().resolve() / name
    if folder.exists():
        hint = "give another --name, or remove the folder"
        raise BadConfigError(Problem(f"--name {name}", f"{folder} exists already", hint))
    return folder


def _limits(job: JobSpec) -> dict[str, int]:
    limits = {"max_env_step": job.max_env_step, "max_train_iter": job.max_train_iter}
    return {key: value for key, value in limits.items() if value is not None}


def _seeds(job: JobSpec, options: SweepOptions) -> tuple[int, ...]:
    if options.seed is not None and job.seeds == tuple(range(len(job.seeds))):
        return tuple(options.seed + seed for seed in job.seeds)
    return job.seeds


def _entry_home(job: JobSpec) -> str | None:
    """Return the job's file if the entry is a function that it defines."""
    defined_there = getattr(job.entry, "__module__", "").startswith(FILE_MODULE_PREFIX)
    return str(job.file) if job.file and defined_there else None


def _python_path(job: JobSpec) -> tuple[str, ...]:
    """Return where a trial finds the user's own modules: as the driver does."""
    beside = [Path(source).parent for source in (job.file, job.config.source) if source]
    known = [str(path) for path in (Path.cwd(), *beside)]
    return tuple(dict.fromkeys(known + [path for path in sys.path if "site-packages" not in path]))
