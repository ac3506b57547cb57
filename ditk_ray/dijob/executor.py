"""The DIJob executor: planned and checked before a sweep, then a job on Kubernetes for each task.

A job outlives the process that submitted it: it is found again by its name.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import ray

from ditk_ray.config.job_spec import JobSpec
from ditk_ray.config.options import KubeSettings, SweepOptions
from ditk_ray.config.resources import TrialResources
from ditk_ray.config.terms import FailureKind
from ditk_ray.dijob.gateway import GatewayClient, kube_gateway
from ditk_ray.dijob.job_run import JobRun
from ditk_ray.dijob.jobs import JobIdentity, sweep_key
from ditk_ray.dijob.manifests import ALL_TASKS, JobManifests, asks_for_gpu, render_job
from ditk_ray.dijob.pod_script import render_pod_script
from ditk_ray.dijob.sweep_jobs import Kept
from ditk_ray.dijob.template import DijobTemplate, read_template
from ditk_ray.errors import (
    BadConfigError,
    KubeConflictError,
    KubeError,
    KubeForbiddenError,
    KubeRefusedError,
    KubeUnreachableError,
    Problem,
    TrialFailedError,
)
from ditk_ray.execution.executor import WAITING_ACTOR, Ended, Event, Executor, Handle, Run
from ditk_ray.kube.connection import Kube, Right, connect, missing_rights, settled
from ditk_ray.kube.objects import CONFIG_MAPS, DIJOBS, EVENTS, PODS
from ditk_ray.trial.outcome import RESULT_FILE
from ditk_ray.trial.plan import SeedTask

_GROUP = DIJOBS.api_version.partition("/")[0]
_VERBS = {
    (_GROUP, DIJOBS.plural): ("create", "get", "list", "watch", "delete"),
    ("", PODS.plural): ("list", "watch"),
    ("", f"{PODS.plural}/log"): ("get",),
    ("", EVENTS.plural): ("list",),
    ("", CONFIG_MAPS.plural): ("create", "get", "patch", "delete"),
}
SWEEP_RIGHTS = tuple(Right(*place, verb) for place, verbs in _VERBS.items() for verb in verbs)
"""Of those in `cluster_configs/rbac.yaml`, all that a sweep itself makes use of."""

_MAY_RUN = (FailureKind.STALL, FailureKind.NOT_STARTED)
"""Of what a run fails although its job has not ended."""


@dataclass
class DijobExecutor(Executor[SeedTask]):
    """From which template jobs are made, where, and which of them stay when they have ended."""

    template: DijobTemplate
    sweep_key: str
    """What all of the sweep's objects in the cluster are labelled with."""
    cluster: KubeSettings
    """Where the jobs are, independent of later changes of the kubeconfig."""
    resources: Mapping[str, TrialResources]
    """By task; `*` counts for those that are not named."""
    gateway: str
    """The name of the Ray actor that speaks to Kubernetes for all trials."""
    keep: Kept = "none"

    actor = WAITING_ACTOR
    at_once = 10
    restores = False

    @property
    def namespace(self) -> str:
        return self.cluster.namespace or "default"

    def share(self, resources: TrialResources) -> TrialResources:
        """Return what a trial has as its config sees it: a GPU, or none."""
        shared = self.resources.get(ALL_TASKS, TrialResources())
        gpu = float(asks_for_gpu(self.template.dijob["spec"], self.resources))
        return replace(shared, gpu=gpu, max_memory=None)  # of memory the manifests take care

    def check(self, tasks: Sequence[SeedTask]) -> None:
        """Have the cluster check the tasks' jobs, without making them."""
        jobs = [self._order(task) for task in tasks]
        with contextlib.closing(connect(self.cluster)) as kube:
            _require_rights(kube)
            for job in jobs:
                pairs = ((kube.dijobs, job.dijob), (kube.config_maps, job.config_map))
                for objects, manifest in pairs:
                    with contextlib.suppress(KubeConflictError):  # a resumed sweep has it
                        objects.check(manifest or {})

    def preview(self, tasks: Sequence[SeedTask]) -> list[list[Mapping[str, Any]]]:
        orders = [self._order(task) for task in tasks]
        return [[one for one in (job.dijob, job.config_map) if one] for job in orders]

    def describe(self, resources: TrialResources) -> dict[str, Any]:
        given = {task: one.given() for task, one in self.resources.items()}
        return {
            "resources": given.pop(ALL_TASKS, {}),
            "task_resources": given,
            "dijobs": {
                "template": self.template.source,
                "namespace": self.namespace,
                "sweep": self.sweep_key,
            },
        }

    def place(self, resources: TrialResources, seeds: int) -> str:
        jobs = f"{seeds} DIJobs" if seeds > 1 else "a DIJob"
        return f"each {jobs} in the namespace {self.namespace}"

    def serve(self, say: Callable[[str], None]) -> contextlib.AbstractContextManager[None]:
        return kube_gateway(self.gateway, self.cluster, self.sweep_key, self.keep, say)

    def handle_of(self, task: SeedTask) -> Handle:
        return {"job": self._order(task).name, "pods": {}}

    def start(self, task: SeedTask) -> JobRun:
        order = self._order(task)
        run = self._run(task, order.name)
        self._submit(run, order, is_new=True)
        return run

    def adopt(self, task: SeedTask, handle: Handle, may_start: bool) -> JobRun | None:
        order = self._order(task)
        run = self._run(task, str(handle["job"]), handle.get("pods"))
        # If the template has changed, so have the jobs' names.
        if run.job != order.name or not self._submit(run, order, may_start):
            run.stop()
            return None
        return run

    def listen(self, runs: Sequence[Run], seconds: float) -> list[tuple[Run, Event]]:
        live = [run for run in runs if isinstance(run, JobRun) and run.ended is None]
        if news := [(run, event) for run in live for event in run.take(())]:
            return list(news)
        asked = self._questions.values()
        for run in [run for run in live if run not in asked]:
            self._questions[self._client.ask(run.job, run.log, run.place)] = run
        mine = [question for question, run in self._questions.items() if run in live]
        ready, _ = ray.wait(mine, timeout=seconds) if mine else ([], [])
        return [(run, event) for question in ready for run, event in self._answered(question)]

    def _answered(self, question: ray.ObjectRef) -> list[tuple[Run, Event]]:
        run = self._questions.pop(question)
        try:
            run.place, events = self._client.answer(question)
        except ray.exceptions.RayError as error:
            return [(run, event) for event in run.lose(str(getattr(error, "cause", error)))]
        return [(run, event) for event in run.take(events)]

    @cached_property
    def _client(self) -> GatewayClient:
        return GatewayClient(self.gateway)

    @cached_property
    def _questions(self) -> dict[ray.ObjectRef, JobRun]:
        return {}

    def _run(self, task: SeedTask, job: str, pods: dict[str, str] | None = None) -> JobRun:
        project = self.template.project_path
        shared = Path(project) / job / RESULT_FILE if project else None
        return JobRun(job, task.log, self._release, shared, pods)

    def _submit(self, run: JobRun, order: JobManifests, is_new: bool) -> bool:
        try:
            return self._client.submit(order, run.log, is_new)
        except KubeError as error:
            run.stop()
            kind = _kind_of(error)
            raise TrialFailedError(f"the job cannot be submitted: {error}", kind) from error

    def _release(self, job: str, ended: Ended | None) -> bool:
        """Give a job up; it is deleted in the background, unless it is to be kept.

        One that still runs is never kept: it would compute beside its successor.
        """
        for question in [key for key, run in self._questions.items() if run.job == job]:
            del self._questions[question]
        has_failed = ended and ended.kind == "failed" and ended.failure not in _MAY_RUN
        has_finished = ended and ended.kind == "finished"
        is_kept = (self.keep in ("all", "failed") and has_failed) or (
            self.keep == "all" and has_finished
        )
        self._client.release(job, bool(is_kept))
        return not self._client.is_gone

    def _order(self, task: SeedTask) -> JobManifests:
        identity = JobIdentity(
            self.sweep_key, task.trial, task.attempt, task.seed, not task.is_alone
        )
        script = render_pod_script(task.config, task.call, task.title)
        resources = self._larger() if task.has_run_out else self.resources
        return render_job(self.template, identity, script, resources, self.namespace)

    def _larger(self) -> dict[str, TrialResources]:
        return {
            task: replace(given, memory=given.max_memory or given.memory)
            for task, given in self.resources.items()
        }


def plan_dijobs(job: JobSpec, options: SweepOptions, identity: str) -> DijobExecutor:
    """Return how a job's trials become DIJobs; sends nothing. Raises `BadConfigError`.

    `identity` permanently identifies the sweep.
    """
    if job.dijob_template is None:
        hint = "give the YAML file of a DIJob: --dijob_template FILE"
        raise BadConfigError(Problem("dijob_template", "is missing; backend dijob needs it", hint))
    template = read_template(job.dijob_template)
    key = sweep_key(options.name or job.name, identity)
    shared = {ALL_TASKS: job.resources} if job.has_own_resources else {}
    # Jobs go where the user says, else where the template says, else the kubeconfig.
    namespace = options.kube.namespace or template.namespace
    return DijobExecutor(
        template,
        key,
        settled(replace(options.kube, namespace=namespace)),
        {**shared, **job.task_resources},
        gateway=f"ditk_ray_jobs_{key}",
        keep=options.keep_dijobs,
    )


def _require_rights(kube: Kube) -> None:
    missing = missing_rights(kube, SWEEP_RIGHTS)
    if missing:
        lacking = "".join(f"\n    {right.verb} {right.resource}" for right in missing)
        raise KubeForbiddenError(
            f"this account lacks permissions in namespace {kube.namespace!r}:{lacking}\n"
            "  cluster_configs/rbac.yaml lists all that are needed",
            403,
        )


def _kind_of(error: KubeError) -> FailureKind:
    """Tell whether trying again later may help."""
    if isinstance(error, KubeUnreachableError):
        return FailureKind.LOST
    if isinstance(error, KubeConflictError) and not error.is_there_already:
        return FailureKind.LOST  # others changed a quota at the same moment
    # A quota is refused with 403, and what uses it up now may be gone later.
    is_full = isinstance(error, KubeRefusedError) and "exceeded quota" in str(error)
    return FailureKind.NOT_STARTED if is_full else FailureKind.BUG
