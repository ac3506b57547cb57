"""`ditk-ray dijob`: manage single DIJobs, without kubectl."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ditk_ray.cli import output
from ditk_ray.cli.flags import Family, KubeCommand, ObjectCommand
from ditk_ray.cli.output import note, print_items, print_section, print_value
from ditk_ray.config.options import option, positive, seconds
from ditk_ray.dijob import job_views
from ditk_ray.dijob.edit import patch_job, read_patch, scale_job, submit_job
from ditk_ray.dijob.jobs import check_task, is_finished, phase_of
from ditk_ray.dijob.liveness import finished_jobs, jobs_of_sweep
from ditk_ray.dijob.manifests import build_job, read_config
from ditk_ray.dijob.template import read_template
from ditk_ray.errors import BadConfigError, DitkRayError, KubeNotFoundError, Problem
from ditk_ray.kube.connection import Kube, connect
from ditk_ray.kube.objects import DIJOBS, Manifest, Piece, show_age

_KEYS = ["name", "phase", "ready", "replicas", "restarts", "reschedules", "age", "sweep", "trial"]

FAMILY = Family(
    {
        "create": (".dijob:Create", "submit a job from a file"),
        "get": (".dijob:Get", "list jobs, or show one"),
        "describe": (".dijob:Describe", "show a job's phases, tasks, pods and events"),
        "logs": (".dijob:Logs", "print the logs of a job's pods"),
        "patch": (".dijob:Patch", "change fields of a job"),
        "scale": (".dijob:Scale", "change a task's number of replicas"),
        "delete": (".dijob:Delete", "delete jobs"),
        "wait": (".dijob:Wait", "wait until a job has succeeded, or reached another state"),
    },
    """Manage single DIJobs, including those of sweeps.

      ditk-ray dijob create -f job.yaml --config cartpole_dqn_config.py
      ditk-ray dijob logs my-job --follow
      ditk-ray dijob delete my-job

    `ditk-ray dijob COMMAND --help` explains each.
    """,
)


class Get(ObjectCommand):
    """List the DIJobs of a namespace, or show one.

      ditk-ray dijob get                        all jobs of the namespace
      ditk-ray dijob get my-job --format yaml
      ditk-ray dijob get --sweep my_sweep

    JSON and YAML have what the API server says, as `kubectl get dijobs -o json` prints it.
    """

    name: str | None = option("(default: all)", None, positional=True)
    sweep: str | None = option("only jobs of this sweep: name or key", metavar="SWEEP")

    def run(self) -> int:
        if self.name and self.sweep:
            raise BadConfigError(Problem("--sweep", "does not go together with NAME"))
        kube = connect(self.kube)
        if self.name:
            jobs = [kube.dijobs.get(self.name)]
        else:
            jobs = jobs_of_sweep(kube, self.sweep) if self.sweep else kube.dijobs.list()
        if self.format == "table":
            print_jobs(kube, jobs)
            return 0
        for job in jobs:
            job["metadata"].pop("managedFields", None)  # kubectl does not show them either
        whole = {"apiVersion": "v1", "kind": "List", "items": jobs}
        print_value(jobs[0] if self.name else whole, self.format)
        return 0


def print_jobs(kube: Kube, jobs: list[Manifest]) -> None:
    items = [job_views.job_row(job, datetime.now(UTC)) for job in jobs]
    keys = _KEYS if any(one["sweep"] for one in items) else _KEYS[:-2]
    print_items(items, keys, "table")
    if not jobs:
        note(f"no DIJobs in namespace {kube.namespace!r}")


class Describe(ObjectCommand):
    """Show a DIJob's phases, tasks and events, and its pods with what is wrong with them.

    ditk-ray dijob describe my-job
    """

    name: str = option("name of the DIJob", positional=True)

    def run(self) -> int:
        described = job_views.job_details(connect(self.kube), self.name, datetime.now(UTC))
        if self.format == "table":
            _print_description(described)
        else:
            print_value(described, self.format)
        return 0


def _print_description(job: dict[str, Any]) -> None:
    output.print_facts(
        {
            "Name": job["name"],
            "Namespace": job["namespace"],
            "Created": f"{job['created']} ({show_age(job['age'])} ago)",
            "Sweep": f"{job['sweep']} {job['trial']}".strip(),
            "Phase": job["phase"] or "none yet",
            "Why": job["why"],
            "Pods": f"{job['ready']} ready of {job['replicas']}, "
            f"{job['restarts']} restarts, {job['reschedules']} reschedules",
        }
    )
    print_section("Conditions", job["conditions"], ["phase", "since", "message"])
    print_section("Tasks", job["tasks"], ["name", "type", "replicas", "pods"])
    print_section("Pods", job["pods"], ["name", "state", "restarts", "node", "age", "why"])
    keys = ["age", "type", "reason", "count", "object", "message"]
    print_section("Events", job["events"], keys)


class Logs(KubeCommand):
    """Print the logs of a DIJob's pods, also while they are written.

      ditk-ray dijob logs my-job --follow               until the job ends
      ditk-ray dijob logs my-job --task learner --tail 100

    The log is that of the container `di-container`, or else of the first. With several pods each
    line begins with its pod. A pod's log is deleted with the pod: a finished job has what its
    cleanPodPolicy leaves.
    """

    name: str = option("name of the DIJob", positional=True)
    task: str | None = option("only pods of this task (default: all)", metavar="TASK")
    follow: bool = option("follow the logs until the job ends", False)
    tail: int | None = option("only the last N lines of each pod", metavar="N", parse=positive)

    def run(self) -> int:
        kube = connect(self.kube)
        job = kube.dijobs.get(self.name)
        check_task(job, self.task)
        read = job_views.followed_lines if self.follow else job_views.printed_lines
        with contextlib.closing(read(kube, job, self.task, self.tail, note)) as lines:
            for line in lines:
                print(line, flush=True)
        return 0


class Wait(KubeCommand):
    """Wait for a DIJob to succeed, or for another goal, and say why if it does not.

      ditk-ray dijob wait my-job                        until it has succeeded
      ditk-ray dijob wait my-job --for running --timeout 5m
      ditk-ray dijob delete my-job && ditk-ray dijob wait my-job --for deleted

    Exit code: 0 if the goal was reached, 1 if it was not, or cannot be any more. Phases, and what
    keeps the job from starting, are printed on the standard error.
    """

    name: str = option("name of the DIJob", positional=True)
    goal: job_views.Goal = option(
        "what to wait for; finished is succeeded or failed (default: %(default)s)",
        "succeeded",
        flags=["--for"],
    )
    timeout: float = option("(default: 10m)", 600.0, metavar="TIME", parse=seconds)

    def run(self) -> int:
        kube = connect(self.kube)
        reached = job_views.wait_for_job(kube, self.name, self.goal, self.timeout, note)
        print(f"dijob/{self.name} {reached}")
        return 0


class Create(ObjectCommand):
    """Submit one DIJob from a file, after checking for what DI-orchestrator cannot handle.

      ditk-ray dijob create -f job.yaml --name second-try --namespace rl
      ditk-ray dijob create -f job.yaml --config cartpole_dqn_config.py

    FILE holds a DIJob and optionally a ConfigMap. The text of CONFIG.py goes into the key of
    the ConfigMap that is left empty; where FILE has no ConfigMap, it is /etc/ditk-ray/config.py
    in every container. The ConfigMap gets the job's name, and is deleted with the job. The job
    belongs to no sweep: `ditk-ray gc` leaves it alone.
    """

    file: Path = option("a template", required=True, flags=["-f", "--file"], metavar="FILE")
    config: Path | None = option("the script to put in", metavar="CONFIG.py")
    name: str | None = option("(default: FILE's metadata.name)", metavar="NAME")

    def run(self) -> int:
        script = read_config(self.config) if self.config is not None else None
        template = read_template(self.file)
        namespace = self.kube.namespace or template.namespace
        kube = connect(replace(self.kube, namespace=namespace))
        order = build_job(template, kube.namespace, script, self.name)
        _report(submit_job(kube, order)[0], "created", self.format)
        return 0


def _report(job: Manifest, done: str, form: str) -> None:
    if form == "table":
        print(f"dijob/{job['metadata']['name']} {done}")
    else:
        print_value(job, form)


class Patch(ObjectCommand):
    """Merge values into a DIJob, unless DI-orchestrator cannot handle the result.

      ditk-ray dijob patch my-job -p '{"spec": {"cleanPodPolicy": "None"}}'
      ditk-ray dijob patch my-job -p 'metadata: {labels: {team: rl}}'

    It is a merge: null removes a key, and a list such as spec.tasks is replaced as a whole.
    The DIJob is changed; its existing pods stay as they are.
    """

    name: str = option("name of the DIJob", positional=True)
    patch: str = option(
        "the values, as JSON or YAML", required=True, flags=["-p", "--patch"], metavar="PATCH"
    )

    def run(self) -> int:
        changes = read_patch(self.patch)
        job, is_changed = patch_job(connect(self.kube), self.name, changes)
        return _report_change(job, "patched", is_changed, self.format)


def _report_change(job: Manifest, done: str, is_changed: bool, form: str) -> int:
    _report(job, done if is_changed else f"{done} (no change)", form)
    if is_finished(job):
        note(f"the job has ended ({phase_of(job)}): no pods will be created")
    return 0


class Scale(ObjectCommand):
    """Change how many pods a task of a DIJob has.

      ditk-ray dijob scale my-job --task collector --replicas 8

    The DIJob is changed; `ditk-ray dijob describe my-job` shows what DI-orchestrator does with it.
    Pods that run keep the DI_NODES that they were started with.
    """

    name: str = option("name of the DIJob", positional=True)
    task: str = option("its name, or its type", required=True, metavar="TASK")
    replicas: int = option("1 or more", required=True, metavar="N", parse=positive)

    def run(self) -> int:
        job, is_changed = scale_job(connect(self.kube), self.name, self.task, self.replicas)
        return _report_change(job, "scaled", is_changed, self.format)


class Delete(KubeCommand):
    """Delete DIJobs with all that belongs to them.

      ditk-ray dijob delete my-job
      ditk-ray dijob delete --sweep my_sweep            all jobs of a sweep, after confirmation
      ditk-ray dijob delete --all_finished --yes        all that succeeded or failed

    A job that runs is ended. Its pods, its Service and its ConfigMap follow in the background.
    A running sweep counts a trial whose job is deleted as lost, and may start it again:
    `ditk-ray cancel` stops it. --all_finished leaves the jobs of running sweeps alone.
    """

    names: tuple[str, ...] = option("names of DIJobs", (), positional=True, metavar="NAME")
    sweep: str | None = option("those of this sweep: name or key", metavar="SWEEP")
    all_finished: bool = option("those that succeeded or failed", False)
    yes: bool = option("do not ask before deleting several", False)

    def run(self) -> int:
        if sum(map(bool, (self.names, self.sweep, self.all_finished))) != 1:
            what = "say which jobs, by one of NAME, --sweep SWEEP and --all_finished"
            raise BadConfigError(Problem("delete", what))
        kube = connect(self.kube)
        jobs, missing = _chosen(kube, self)
        if not jobs and not missing:
            note(f"no DIJob in namespace {kube.namespace!r} has ended")
        if len(jobs) > 1 and not self.yes:
            print_jobs(kube, jobs)
        if len(jobs) > 1 and not output.agrees(f"delete these {len(jobs)} DIJobs?", self.yes):
            return 1
        for job in jobs:
            piece = Piece(DIJOBS, job)  # the very job that was shown
            if kube.delete(piece):
                print(f"{piece.title} deleted", flush=True)
            else:
                missing.append(DitkRayError(f"{piece.title} was deleted or replaced meanwhile"))
        for each in missing:
            note(f"error: {each}")
        return 1 if missing else 0


def _chosen(kube: Kube, given: Delete) -> tuple[list[Manifest], list[DitkRayError]]:
    if given.sweep:
        return jobs_of_sweep(kube, given.sweep), []
    if given.all_finished:
        return finished_jobs(kube, datetime.now(UTC)), []
    jobs: list[Manifest] = []
    missing: list[DitkRayError] = []
    for name in dict.fromkeys(given.names):
        try:
            jobs.append(kube.dijobs.get(name))
        except KubeNotFoundError as error:
            missing.append(error)
    return jobs, missing
