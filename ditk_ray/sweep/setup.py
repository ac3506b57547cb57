"""Checking a sweep as a whole before anything of it runs."""

from __future__ import annotations

import contextlib
import secrets
import sys
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Literal

from ditk_ray.cluster.nodes import Node, cluster_nodes, share_nodes, this_machine
from ditk_ray.cluster.ray_session import remote_ray, require_shared_folder
from ditk_ray.cluster.worker_groups import nodes_to_come, worker_groups
from ditk_ray.config.config_file import EntryCall
from ditk_ray.config.engine_config import EngineConfig
from ditk_ray.config.job_spec import JobSpec
from ditk_ray.config.python_file import FILE_MODULE_PREFIX
from ditk_ray.config.resources import TrialResources
from ditk_ray.config.space import SearchSpace, count_trials
from ditk_ray.config.space_check import KnownPaths, check_space
from ditk_ray.config.sweep_names import require_sweep_name
from ditk_ray.errors import BadConfigError, DitkRayError, Problem
from ditk_ray.kube.connection import KubeSettings
from ditk_ray.kube.job_watch import Kept
from ditk_ray.search.grid import count_added
from ditk_ray.search.schedulers import needs_checkpoints
from ditk_ray.sweep.dijob_setup import ACTOR, AT_ONCE, plan_dijobs, pod_share, refuse_pausing
from ditk_ray.sweep.drivers import build_search
from ditk_ray.sweep.earlier import EarlierSweep
from ditk_ray.sweep.fitting import fitting_slots
from ditk_ray.sweep.parts import SweepParts, build_parts
from ditk_ray.sweep.saved_job import SavedJob, save_job
from ditk_ray.tracking.recorder import TrackingOptions
from ditk_ray.tracking.store import NOWHERE
from ditk_ray.trial.dijob_plan import DijobPlan
from ditk_ray.trial.inspection import inspect_experiment
from ditk_ray.trial.spec import TrialPlan
from ditk_ray.trial.warm_node import WarmNode

_LAST_SECONDS = 3.0
"""How long after the sweep's end its trials wait for Tune, which stops them, to do so."""


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
    kube: KubeSettings = field(default_factory=KubeSettings)
    """Where DIJobs go."""
    keep_dijobs: Kept = "none"
    """Which of them stay when they have ended."""
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
    parts: SweepParts
    sampling_seed: int
    """What trials are drawn by, where that is by chance."""
    earlier: EarlierSweep | None = None
    """What it goes on from."""
    identity: str = ""
    """What no other sweep has, wherever it runs."""
    dijob: DijobPlan | None = None
    """How its trials become DIJobs, if they do."""

    @property
    def concurrency(self) -> int:
        """How many trials run at once."""
        return min(self.slots, self.job.max_concurrent or self.slots, self.trial_count)

    @property
    def trial_count(self) -> int:
        """How many trials there will be: the grid's points, `num_samples` times, and known ones."""
        drawn = count_trials(self.parts.space, self.job.num_samples)
        return drawn + count_added(self.parts.space, self.parts.first)

    @property
    def checkpoints(self) -> bool:
        """Whether trials keep checkpoints: by wish, or because the scheduler needs them."""
        if self.dijob is not None:
            return False
        return self.job.checkpoints or needs_checkpoints(self.parts.scheduler)

    @property
    def seconds_left(self) -> float | None:
        """What is left of the sweep's time, if that is limited."""
        if self.job.max_time is None:
            return None
        return self.job.max_time - (self.earlier.record.worked_seconds if self.earlier else 0)

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
        job, left = self.job, self.seconds_left
        return TrialPlan(
            base=job.config,
            space=self.parts.space,
            entry=job.entry,
            entry_args=job.entry_args,
            limits=_limits(job),
            seeds=self.seeds,
            resources=pod_share(self.dijob) if self.dijob else self.resources,
            sweep_folder=self.folder,
            warm_key=self.warm_key,
            max_seconds=job.max_trial_time,
            ends_at=time.time() + left + _LAST_SECONDS if left is not None else None,
            checkpoints=self.checkpoints,
            checkpoints_every_evaluation=needs_checkpoints(self.parts.scheduler),
            checkpoint_buffer=job.checkpoint_buffer,
            python_path=_python_path(job),
            entry_home=_entry_home(job),
            metric=job.metric,
            mode=job.mode,
            seeds_aggregate=job.seeds_aggregate,
            startup_time=job.startup_time,
            stall_time=job.stall_time,
            retries=job.retries,
            dijob=self.dijob,
        )


@contextlib.contextmanager
def prepared_sweep(
    job: JobSpec, options: SweepOptions, warm: WarmNode, earlier: EarlierSweep | None = None
) -> Iterator[PreparedSweep]:
    """Check everything that can be checked, and hold what the run will need.

    `warm` is this node's fork server, which the checks ask and the trials use; with
    `earlier` that sweep goes on. With `run_mode` remote the process stays connected to the
    cluster until the context ends. Raises a `DitkRayError` that says what is wrong; nothing
    was created then.
    """
    name = options.name or f"{job.name}_{datetime.now():%Y%m%d_%H%M%S}"
    folder = earlier.folder if earlier else _free_folder(options.storage_path, name)
    seed = _sampling_seed(options, earlier)
    identity = earlier.saved.identity if earlier else uuid.uuid4().hex
    search = build_search(job, seed, options.storage_path, goes_on=earlier is not None)
    with contextlib.ExitStack() as stack:
        nodes = [this_machine()]
        if options.run_mode == "remote":
            stack.enter_context(remote_ray(options.ray_address))
            nodes = cluster_nodes()
            nodes += nodes_to_come(worker_groups(), nodes)
        dijob = plan_dijobs(job, options, identity) if job.backend == "dijob" else None
        if dijob:  # whoever goes on with the sweep has to find its jobs
            options = replace(options, kube=dijob.cluster)
        resources = ACTOR if dijob else job.resources
        if options.num_workers_per_node and not dijob:
            resources = share_nodes(resources, nodes, options.num_workers_per_node)
        slots = fitting_slots(resources, nodes)
        defaults = _check_with_engine(job, search.space, options, warm)
        parts = build_parts(job, search, defaults)
        if dijob:
            refuse_pausing(parts.scheduler)
        yield PreparedSweep(
            job,
            options,
            folder.name,
            folder,
            tuple(nodes),
            resources,
            min(slots, job.max_concurrent or AT_ONCE) if dijob else slots,
            warm.key,
            parts,
            seed,
            earlier,
            identity,
            dijob,
        )


def make_folder(sweep: PreparedSweep) -> None:
    """Create the sweep's folder with what it can be resumed from.

    Raises `BadConfigError` if it cannot be used.
    """
    try:
        sweep.folder.mkdir(parents=True, exist_ok=sweep.earlier is not None)
    except OSError as error:
        problem = Problem(f"--storage_path {sweep.folder.parent}", f"cannot be written: {error}")
        raise BadConfigError(problem) from error
    if len(sweep.nodes) > 1:
        try:
            require_shared_folder(sweep.folder)
        except DitkRayError:
            if sweep.earlier is None:
                sweep.folder.rmdir()
            raise


def keep_job(sweep: PreparedSweep) -> None:
    """Keep what the sweep can be resumed from; a warm start is over by then."""
    first = {"known_points": tuple(sweep.parts.first), "warm_start": None}
    job = sweep.job.model_copy(update=first)
    saved = SavedJob(job, sweep.options, sweep.sampling_seed, sweep.identity)
    save_job(sweep.folder, saved, _python_path(sweep.job))


def _sampling_seed(options: SweepOptions, earlier: EarlierSweep | None) -> int:
    if earlier is not None:
        return earlier.saved.sampling_seed
    return options.seed if options.seed is not None else secrets.randbelow(2**31)


def _check_with_engine(
    job: JobSpec, space: SearchSpace, options: SweepOptions, warm: WarmNode
) -> EngineConfig:
    """Return the config with all that DI-engine adds to it."""
    warm.join()
    warm.preload(job.config.environment_modules)
    seed = _seeds(job, options)[0]
    call = EntryCall(job.entry, {"seed": seed, **_limits(job), **job.entry_args})
    inspection = inspect_experiment(warm, job.config, call, _python_path(job))
    problems = list(inspection.problems)
    if not problems:
        problems = check_space(space, KnownPaths(job.config, inspection.defaults))
    if problems:
        raise BadConfigError(
            Problem(f"{job.name}: {item.where}", item.what, item.hint) for item in problems
        )
    return inspection.defaults


def _free_folder(storage: Path, name: str) -> Path:
    require_sweep_name(name)
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
