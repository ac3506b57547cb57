"""What a sweep needs whose trials are DIJobs, checked before anything of it runs."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ditk_ray.config.job_spec import JobSpec
from ditk_ray.config.resources import TrialResources
from ditk_ray.errors import BadConfigError, KubeConflictError, KubeForbiddenError, Problem
from ditk_ray.kube.access import missing_rights
from ditk_ray.kube.connection import Kube, KubeSettings, connect, settled
from ditk_ray.kube.labels import JobIdentity, sweep_key
from ditk_ray.kube.manifests import ALL_TASKS, JobManifests
from ditk_ray.kube.pod_resources import asks_for_gpu
from ditk_ray.kube.sweep_rights import SWEEP_RIGHTS
from ditk_ray.kube.template import DijobTemplate, read_template
from ditk_ray.search.schedulers import needs_checkpoints
from ditk_ray.sweep.draws import SpaceDraws
from ditk_ray.sweep.trial_source import TRIAL_PREFIX
from ditk_ray.trial.dijob_plan import DijobPlan
from ditk_ray.trial.dijob_run import job_order
from ditk_ray.trial.job_office import job_office
from ditk_ray.trial.spec import TrialPlan

if TYPE_CHECKING:
    from ditk_ray.sweep.setup import PreparedSweep, SweepOptions

AT_ONCE = 10
"""How many jobs there are at once, unless the job says how many."""

ACTOR = TrialResources(cpu=0.01)
"""What a trial needs of Ray's nodes that only waits for its job."""

_FIRST = f"{TRIAL_PREFIX}00000"


def plan_dijobs(job: JobSpec, options: SweepOptions, identity: str) -> DijobPlan:
    """Return how a job's trials become DIJobs; sends nothing. Raises `BadConfigError`.

    `identity` is the sweep's own for good.
    """
    assert job.dijob_template is not None
    template = read_template(job.dijob_template)
    key = sweep_key(options.name or job.name, identity)
    shared = {ALL_TASKS: job.resources} if job.has_own_resources else {}
    return DijobPlan(
        template,
        key,
        _cluster(options.kube, template),
        {**shared, **job.task_resources},
        office=f"ditk_ray_jobs_{key}",
        keep=options.keep_dijobs,
    )


def pod_share(dijob: DijobPlan) -> TrialResources:
    """Return what a trial has as its config sees it: a GPU, or none."""
    shared = dijob.resources.get(ALL_TASKS, TrialResources())
    return replace(shared, gpu=float(asks_for_gpu(dijob.template.dijob["spec"], dijob.resources)))


def refuse_pausing(scheduler: Any) -> None:
    """Raise `BadConfigError` for a scheduler that has trials go on from checkpoints."""
    if needs_checkpoints(scheduler):
        what = f"{type(scheduler).__name__} pauses trials, and a DIJob cannot go on where it was"
        hint = "with --backend dijob use fifo, asha or median"
        raise BadConfigError(Problem("scheduler", what, hint))


def first_jobs(plan: TrialPlan, drawn: Mapping[str, Any]) -> list[JobManifests]:
    """Return what is submitted for the first trial, a job for each seed."""
    assert plan.dijob is not None
    several = len(plan.seeds) > 1
    return [
        job_order(plan, drawn, seed, JobIdentity(plan.dijob.sweep_key, _FIRST, 0, seed, several))
        for seed in plan.seeds
    ]


def draw_first(sweep: PreparedSweep) -> Mapping[str, Any]:
    """Return what the first trial would be given. A searcher is not to be used after that."""
    searcher = sweep.parts.searcher
    drawn = searcher.suggest(_FIRST) if searcher is not None else None
    return drawn if isinstance(drawn, dict) else _draw_by_chance(sweep)


def require_cluster(sweep: PreparedSweep) -> None:
    """Have the cluster check the first trial's job, without making it.

    Raises a `KubeError`, or a `BadConfigError`, that says what is wrong with the cluster,
    our rights or the template.
    """
    plan = sweep.trial_plan()
    assert plan.dijob is not None
    with contextlib.closing(connect(plan.dijob.cluster)) as kube:
        _require_rights(kube)
        for manifests in first_jobs(plan, _draw_by_chance(sweep)):
            for objects, made in (
                (kube.dijobs, manifests.dijob),
                (kube.config_maps, manifests.config_map),
            ):
                with contextlib.suppress(KubeConflictError):  # a sweep that goes on has it
                    objects.check(made)


def open_office(
    sweep: PreparedSweep, say: Callable[[str], None]
) -> contextlib.AbstractContextManager[None]:
    """Have what speaks to Kubernetes for all trials, if they are DIJobs."""
    dijob = sweep.dijob
    if dijob is None:
        return contextlib.nullcontext()
    return job_office(dijob.office, dijob.cluster, dijob.sweep_key, dijob.keep, say)


def _draw_by_chance(sweep: PreparedSweep) -> Mapping[str, Any]:
    parts = sweep.parts
    draws = SpaceDraws(parts.space.tune_space(), sweep.sampling_seed, parts.first)
    return draws.draw(_FIRST) or {}


def _cluster(settings: KubeSettings, template: DijobTemplate) -> KubeSettings:
    """Return where jobs go: where the user says, then the template, then the kubeconfig."""
    return settled(replace(settings, namespace=settings.namespace or template.namespace))


def _require_rights(kube: Kube) -> None:
    """Raise a `KubeForbiddenError` with all rights that a sweep needs and this account lacks."""
    missing = missing_rights(kube, SWEEP_RIGHTS)
    if missing:
        lacking = "".join(f"\n    {right.verb} {right.resource}" for right in missing)
        raise KubeForbiddenError(
            f"this account lacks rights in namespace {kube.namespace!r}:{lacking}\n"
            "  cluster_configs/rbac.yaml has all that are needed",
            403,
        )
