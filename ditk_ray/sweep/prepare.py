"""Checking a sweep as a whole before anything of it runs."""

from __future__ import annotations

import contextlib
import secrets
import sys
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from ray.tune.schedulers import TrialScheduler

from ditk_ray.config.config_file import EntryCall
from ditk_ray.config.engine_config import EngineConfig, entry_name
from ditk_ray.config.job_spec import JobSpec
from ditk_ray.config.options import SweepOptions, require_sweep_name
from ditk_ray.config.resources import TrialResources
from ditk_ray.config.space import SearchSpace, describe_space
from ditk_ray.config.space_check import KnownPaths, check_space
from ditk_ray.dijob.executor import plan_dijobs
from ditk_ray.errors import BadConfigError, DitkRayError, Problem
from ditk_ray.execution.executor import Executor
from ditk_ray.execution.fork_client import ForkClient
from ditk_ray.execution.process import ProcessExecutor
from ditk_ray.execution.scripted import ScriptedExecutor, script_of
from ditk_ray.provenance.secrets import mask_text
from ditk_ray.ray_cluster.nodes import (
    Node,
    cluster_nodes,
    count_slots,
    nodes_to_come,
    share_nodes,
    this_machine,
    worker_groups,
)
from ditk_ray.ray_cluster.session import remote_ray, require_shared_folder
from ditk_ray.record.sweep_folder import TRIAL_PREFIX
from ditk_ray.search.points import count_trials
from ditk_ray.search.schedulers import needs_checkpoints
from ditk_ray.search.stoppers import RuleStopper, build_stopper
from ditk_ray.sweep.resume import EarlierSweep, SavedJob, save_job
from ditk_ray.sweep.search_setup import (
    SearchSetup,
    build_schedule,
    build_search,
    scheduler_name,
    searcher_name,
)
from ditk_ray.sweep.trials import SpaceSampler
from ditk_ray.tracking.recorder import TrackingOptions
from ditk_ray.tracking.recording import NOWHERE
from ditk_ray.trial.attempt import seed_tasks
from ditk_ray.trial.inspection import inspect_experiment, training_modules
from ditk_ray.trial.plan import SeedTask, TrialPlan
from ditk_ray.util.units import show_bytes

_LAST_SECONDS = 3.0
"""How long after the sweep's end its trials wait for Tune, which stops them, to do so."""


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
    executor: Executor[SeedTask]
    """Where its trials run; no caller depends on which it is."""
    search: SearchSetup
    scheduler: TrialScheduler
    stopper: RuleStopper | None
    sampling_seed: int
    """What trials are drawn by, where that is at random."""
    earlier: EarlierSweep | None = None
    """What it resumes."""
    identity: str = ""
    """What no other sweep has, wherever it runs."""

    @property
    def concurrency(self) -> int:
        return min(self.slots, self.job.max_concurrent or self.slots, self.trial_count)

    @property
    def trial_count(self) -> int:
        """How many trials there will be: the grid's points, `num_samples` times, and known ones."""
        return count_trials(self.search.space, self.job.num_samples, self.search.first)

    @property
    def checkpoints(self) -> bool:
        """Whether trials keep checkpoints: by wish, or because the scheduler needs them."""
        wanted = self.job.checkpoints or needs_checkpoints(self.scheduler)
        return wanted and self.executor.restores

    @property
    def seconds_left(self) -> float | None:
        if self.job.max_time is None:
            return None
        return self.job.max_time - (self.earlier.record.worked_seconds if self.earlier else 0)

    @property
    def tracking(self) -> TrackingOptions | None:
        uri = self.options.mlflow_uri
        if uri is None or uri == NOWHERE:
            return None
        seeds = ", ".join(str(seed) for seed in self.job.seeds)
        return TrackingOptions(
            uri,
            self.options.mlflow_experiment or self.job.name,
            self.options.mlflow_checkpoints,
            trial_tags={"seed": seeds, "backend": self.job.backend},
        )

    def trial_plan(self) -> TrialPlan:
        """Return what the workers have to know; the sweep's time starts now."""
        left = self.seconds_left
        job = replace(
            self.job,
            space=self.search.space,
            resources=self.executor.share(self.resources),
            checkpoints=self.checkpoints,
            # What only the driver has a use for.
            searcher=None,
            scheduler=None,
            stopper=None,
            progress_reporter="none",
        )
        return TrialPlan(
            job,
            self.folder,
            self.executor,
            ends_at=time.time() + left + _LAST_SECONDS if left is not None else None,
            checkpoints_every_evaluation=needs_checkpoints(self.scheduler),
            python_path=_python_path(job),
        )


@contextlib.contextmanager
def prepared_sweep(
    job: JobSpec, options: SweepOptions, warm: ForkClient, earlier: EarlierSweep | None = None
) -> Iterator[PreparedSweep]:
    """Check everything that can be checked, and hold what the run will need.

    `warm` is this node's fork server, which the checks ask and the trials use; with
    `earlier` that sweep is resumed. With `run_mode` remote the process stays connected to the
    cluster until the context ends. Raises a `DitkRayError` that says what is wrong; nothing
    was created then.
    """
    name = options.name or f"{job.name}_{datetime.now():%Y%m%d_%H%M%S}"
    folder = earlier.folder if earlier else _free_folder(options.storage_path, name)
    seed = options.seed if options.seed is not None else secrets.randbelow(2**31)
    if options.seed and job.seeds == tuple(range(len(job.seeds))):  # they were only counted
        job = replace(job, seeds=tuple(options.seed + number for number in job.seeds))
    identity = uuid.uuid4().hex
    if earlier:
        seed, identity = earlier.saved.sampling_seed, earlier.saved.identity
    search = build_search(job, seed, options.storage_path, is_resumed=earlier is not None)
    with contextlib.ExitStack() as stack:
        nodes = [this_machine()]
        if options.run_mode == "remote":
            stack.enter_context(remote_ray(options.ray_address))
            nodes = cluster_nodes()
            nodes += nodes_to_come(worker_groups(), nodes)
        executor, options = _choose_executor(job, options, identity, warm)
        resources = executor.actor or job.resources
        if options.num_workers_per_node and executor.actor is None:
            resources = share_nodes(resources, nodes, options.num_workers_per_node)
        slots = count_fitting_slots(resources, nodes)
        defaults = _check_config(job, search.space, warm)
        scheduler = build_schedule(job, search.space, defaults)
        if not executor.restores and needs_checkpoints(scheduler):
            what = f"{type(scheduler).__name__} pauses trials, which cannot resume where they run"
            hint = "use fifo, asha or median"
            raise BadConfigError(Problem("scheduler", what, hint))
        yield PreparedSweep(
            job,
            options,
            folder.name,
            folder,
            tuple(nodes),
            resources,
            min(slots, job.max_concurrent or most) if (most := executor.at_once) else slots,
            executor,
            search,
            scheduler,
            build_stopper(job.stopper, job.objectives, len(job.seeds)),
            seed,
            earlier,
            identity,
        )


def _choose_executor(
    job: JobSpec, options: SweepOptions, identity: str, warm: ForkClient
) -> tuple[Executor[SeedTask], SweepOptions]:
    if script_of(job.entry):
        return ScriptedExecutor(), options
    if job.backend == "dijob":
        dijobs = plan_dijobs(job, options, identity)
        # Whoever resumes the sweep has to find its jobs.
        return dijobs, replace(options, kube=dijobs.cluster)
    return ProcessExecutor(warm.key, training_modules(job.config, job.entry)), options


def make_folder(sweep: PreparedSweep) -> None:
    """Create the sweep's folder; raises OSError, or a `DitkRayError` if nodes do not see it."""
    sweep.folder.mkdir(parents=True, exist_ok=sweep.earlier is not None)
    if len(sweep.nodes) > 1:
        try:
            require_shared_folder(sweep.folder)
        except DitkRayError:
            if sweep.earlier is None:
                sweep.folder.rmdir()
            raise


def keep_job(sweep: PreparedSweep) -> None:
    """Keep what the sweep can be resumed from; a warm start is over by then."""
    job = replace(sweep.job, known_points=tuple(sweep.search.first), warm_start=None)
    saved = SavedJob(job, sweep.options, sweep.sampling_seed, sweep.identity)
    save_job(sweep.folder, saved, _python_path(sweep.job))


def _check_config(job: JobSpec, space: SearchSpace, warm: ForkClient) -> EngineConfig:
    if script_of(job.entry):
        return job.config
    warm.join()
    warm.preload(training_modules(job.config, job.entry))
    call = EntryCall(job.entry, {"seed": job.seeds[0], **job.limits, **job.entry_args})
    defaults, problems = inspect_experiment(warm, job.config, call, _python_path(job))
    if not problems:
        problems = check_space(space, KnownPaths(job.config, defaults))
    if problems:
        raise BadConfigError(
            Problem(f"{job.name}: {item.where}", item.what, item.hint) for item in problems
        )
    return defaults


def _free_folder(storage: Path, name: str) -> Path:
    require_sweep_name(name)
    try:
        folder = storage.expanduser().resolve() / name
        if not folder.exists():
            return folder
    except (OSError, RuntimeError) as error:  # a name that is too long, an unknown ~user
        raise BadConfigError(Problem(f"--storage_path {storage}", str(error))) from error
    hint = "give another --name, or remove the folder"
    raise BadConfigError(Problem(f"--name {name}", f"{folder} exists already", hint))


def _python_path(job: JobSpec) -> tuple[str, ...]:
    """Return where a trial finds the user's own modules: as the driver does."""
    beside = [Path(source).parent for source in (job.file, job.config.source) if source]
    known = [str(path) for path in (Path.cwd(), *beside)]
    return tuple(dict.fromkeys(known + [path for path in sys.path if "site-packages" not in path]))


def count_fitting_slots(trial: TrialResources, nodes: Sequence[Node]) -> int:
    """Return how many trials run at once.

    Raises `DoesNotFitError` if none ever can, and `BadConfigError` if one that ran out of
    memory would wait forever for a node with its `max_memory`.
    """
    slots, most = count_slots(trial, nodes), trial.max_memory
    if most is not None and not any(node.holds(replace(trial, memory=most)) for node in nodes):
        what = f"no node can hold a trial with {show_bytes(most)} of memory"
        found = "; ".join(str(node) for node in nodes)
        raise BadConfigError(Problem("resources.max_memory", what, f"the nodes have: {found}"))
    return slots


def describe_job(sweep: PreparedSweep) -> dict[str, Any]:
    job = sweep.job
    plain = ("num_samples", "max_env_step", "max_train_iter", "max_trial_time", "max_time")
    return {
        "name": job.name,
        "file": job.file and str(job.file),
        "config": job.config.source,
        "entry": entry_name(job.entry),
        "backend": job.backend,
        "metric": job.metric,
        "mode": job.mode,
        "objectives": [vars(objective) for objective in job.objectives],
        **{key: getattr(job, key) for key in plain},
        "max_concurrent": sweep.concurrency,
        "seeds": list(job.seeds),
        "seeds_aggregate": job.seeds_aggregate,
        "sampling_seed": sweep.options.seed,
        **sweep.executor.describe(sweep.resources),
        "searcher": _describe_part(searcher_name(job), job.searcher_options, job.searcher),
        "scheduler": _describe_part(scheduler_name(job), job.scheduler_options, sweep.scheduler),
        "known_points": len(job.known_points),
        "warm_start": job.warm_start,
        "stopper": sweep.stopper and str(sweep.stopper),
        "space": describe_space(job.space),
    }


def _describe_part(name: str | None, options: Mapping[str, Any], part: Any) -> dict[str, Any]:
    """Return a searcher's or scheduler's name as given, and those settings that are plain.

    Of an object that the user made, or that was made by name, its own attributes count.
    """
    settings = {key.strip("_"): value for key, value in getattr(part, "__dict__", {}).items()}
    plain = {
        key: mask_text(value) if isinstance(value, str) else value
        for key, value in {**settings, **options}.items()
        if value is None or isinstance(value, (bool, int, float, str))
    }
    return {"name": name or type(part).__name__, "settings": plain}


def first_tasks(sweep: PreparedSweep) -> list[SeedTask]:
    """Return what would run for a first trial, drawn at random."""
    search = sweep.search
    name = f"{TRIAL_PREFIX}00000"
    sampler = SpaceSampler(search.space.tune_space(), sweep.sampling_seed, search.first)
    return seed_tasks(sweep.trial_plan(), sampler.draw(name), sweep.folder / name, attempt=0)
