"""The DIJob backend: an attempt of a trial as jobs on Kubernetes, one for each seed."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import ray

from ditk_ray.config.whole_file import write_whole
from ditk_ray.errors import (
    KubeConflictError,
    KubeError,
    KubeRefusedError,
    KubeUnreachableError,
    TrialFailedError,
)
from ditk_ray.kube.labels import JobIdentity
from ditk_ray.kube.manifests import JobManifests, render_job
from ditk_ray.trial.attempt_run import AttemptRun, attempt_folder, next_attempt
from ditk_ray.trial.dijob_plan import DijobPlan
from ditk_ray.trial.failure_log import read_failures
from ditk_ray.trial.failures import FailureKind
from ditk_ray.trial.files import LOG_FILE, METRICS_FILE, RESULT_FILE
from ditk_ray.trial.job_office import OfficeDesk, Place
from ditk_ray.trial.job_seed import JobSeed
from ditk_ray.trial.metrics_file import read_reports
from ditk_ray.trial.pod_script import render_pod_script
from ditk_ray.trial.report_keys import ATTEMPT, ENDED
from ditk_ray.trial.seed import Metrics
from ditk_ray.trial.spec import TrialPlan

_STILL_RUNNING = (FailureKind.STALL, FailureKind.NOT_STARTED)
"""Of what an attempt fails although its job has not ended."""

JOBS_FILE = "jobs.json"
"""In an attempt's folder, for as long as its jobs are its own: for each seed its job's name, and
the uids of the pods that have evaluated."""


def start_dijob_run(
    plan: TrialPlan, drawn: Mapping[str, Any], folder: Path, office: OfficeDesk
) -> DijobRun:
    """Start the next attempt of a trial, or adopt one that an earlier process left running.

    Of an adopted attempt nothing is started again: what its jobs have reported since is
    read from their logs. Raises `TrialFailedError` if a job cannot be submitted, and
    `OutOfReachError` if nobody is there to submit it.
    """
    left = _left_running(folder)
    if left is not None:
        adopted = DijobRun(plan, drawn, folder, office, left, _reports_of(folder, left))
        if adopted.begin():
            return adopted
    run = DijobRun(plan, drawn, folder, office, next_attempt(folder))
    run.begin()
    return run


class DijobRun(AttemptRun):
    """An attempt whose seeds are DIJobs; of an adopted one there are reports already."""

    def __init__(
        self,
        plan: TrialPlan,
        drawn: Mapping[str, Any],
        folder: Path,
        office: OfficeDesk,
        attempt: int,
        reports: int = 0,
    ) -> None:
        super().__init__(plan, folder, attempt, reports)
        assert plan.dijob is not None
        self._dijob: DijobPlan = plan.dijob
        self._office = office
        self._drawn = drawn
        self._places: dict[int, Place] = {}
        self._questions: dict[ray.ObjectRef, JobSeed] = {}
        self._seeds: list[JobSeed] = []
        self._pods_written = 0

    @property
    def seeds(self) -> Sequence[JobSeed]:
        """Those that are trained, in the plan's order."""
        return self._seeds

    def close(self) -> None:
        """Give the jobs up; they are deleted in the background, unless they are to be kept.

        Jobs that are out of reach stay the attempt's own: whoever comes next adopts them.
        """
        super().close()
        self._questions = {}
        for seed in self._seeds:
            self._office.release(seed.job, self._is_kept(seed))
        if not self._office.is_gone:
            self._jobs_file.unlink(missing_ok=True)

    def _is_kept(self, seed: JobSeed) -> bool:
        """Tell whether a job stays; one that still runs would compute beside its successor."""
        has_failed = seed.failure is not None and seed.failure.kind not in _STILL_RUNNING
        if self._dijob.keep == "all":
            return seed.has_ended or has_failed
        return self._dijob.keep == "failed" and has_failed

    def begin(self) -> bool:
        """Submit the jobs, or find them; say whether all are there that have reported."""
        self._write_config(self._plan.config_of(self._drawn))
        orders = {seed: self._order(seed) for seed in self._plan.seeds}
        attempt_folder(self.folder, self.attempt).mkdir(exist_ok=True)
        known = _read_jobs(self._jobs_file)
        self._seeds = [
            self._seed(seed, {"job": order.name} | known.get(str(seed), {}))
            for seed, order in orders.items()
        ]
        self._write_jobs()
        # Some that should have been submitted before may never have been.
        is_new = self.reports == 0
        try:
            for seed, order in zip(self._seeds, orders.values(), strict=True):
                is_there = seed.job == order.name and self._office.submit(order, seed.log, is_new)
                if not is_there:  # or the template has changed, and with it the jobs' names
                    self.close()
                    return False
        except KubeError as error:
            self.close()
            kind = _kind_of(error)
            raise TrialFailedError(f"the job cannot be submitted: {error}", kind) from error
        return True

    def _order(self, seed: int) -> JobManifests:
        return job_order(self._plan_now(), self._drawn, seed, self._identity(seed))

    def _identity(self, seed: int) -> JobIdentity:
        return JobIdentity(
            self._dijob.sweep_key,
            self.folder.name,
            self.attempt,
            seed,
            len(self._plan.seeds) > 1,
        )

    def _plan_now(self) -> TrialPlan:
        """Return the plan, with more memory where a trial ran out of it and may have more."""
        kinds = {failure.kind for failure in read_failures(self.folder)}
        if FailureKind.OUT_OF_MEMORY not in kinds:
            return self._plan
        larger = {
            task: replace(given, memory=given.max_memory or given.memory)
            for task, given in self._dijob.resources.items()
        }
        return replace(self._plan, dijob=replace(self._dijob, resources=larger))

    def _seed(self, seed: int, known: Mapping[str, Any]) -> JobSeed:
        job = str(known["job"])
        project = self._dijob.template.project_path
        shared = Path(project) / job / RESULT_FILE if project else None
        return JobSeed(
            seed,
            job,
            self._log_of(seed),
            self._result_file(seed),
            self.reports,
            shared,
            known.get("pods"),
        )

    @property
    def _jobs_file(self) -> Path:
        return attempt_folder(self.folder, self.attempt) / JOBS_FILE

    def _write_jobs(self) -> None:
        self._pods_written = sum(len(seed.evaluators) for seed in self._seeds)
        jobs = {str(seed.seed): {"job": seed.job, "pods": seed.evaluators} for seed in self._seeds}
        write_whole(self._jobs_file, json.dumps(jobs))

    def _evaluated(self, number: int, metrics: Metrics) -> Metrics:
        if sum(len(seed.evaluators) for seed in self._seeds) > self._pods_written:
            self._write_jobs()
        return {}

    def _log_of(self, seed: int) -> Path:
        return self._folder_of(seed) / LOG_FILE

    def _listen(self, seconds: float) -> set[int]:
        asked = {seed.seed for seed in self._questions.values()}
        for seed in self._seeds:
            if not seed.is_over and not seed.has_ended and seed.seed not in asked:
                place = self._places.get(seed.seed, Place())
                self._questions[self._office.ask(seed.job, seed.log, place)] = seed
        ready, _ = ray.wait(list(self._questions), timeout=seconds)
        heard: set[int] = set()
        for question in ready:
            seed = self._questions.pop(question)
            try:
                self._places[seed.seed], events = self._office.answer(question)
            except ray.exceptions.RayError as error:
                seed.lose(str(getattr(error, "cause", None) or error))
                continue
            seed.take(events)
            if events:
                heard.add(seed.seed)
        return heard


def job_order(
    plan: TrialPlan, drawn: Mapping[str, Any], seed: int, identity: JobIdentity
) -> JobManifests:
    """Return what is submitted for one seed of an attempt; raises `BadConfigError`."""
    assert plan.dijob is not None
    dijob = plan.dijob
    title = f"A trial of {plan.sweep_folder.name}: {identity.trial}, attempt {identity.attempt}."
    script = render_pod_script(plan, drawn, seed, title)
    return render_job(dijob.template, identity, script, dijob.resources, {}, dijob.namespace)


def _kind_of(error: KubeError) -> FailureKind:
    """Tell whether trying again later may help."""
    if isinstance(error, KubeUnreachableError):
        return FailureKind.LOST
    if isinstance(error, KubeConflictError) and not error.is_there_already:
        return FailureKind.LOST  # others changed a quota at the same moment
    # A quota is refused with 403, and what uses it up now may be gone later.
    is_full = isinstance(error, KubeRefusedError) and "exceeded quota" in str(error)
    return FailureKind.NOT_STARTED if is_full else FailureKind.BUG


def _left_running(folder: Path) -> int | None:
    """Return the newest attempt if an earlier process has not given its jobs up."""
    newest = next_attempt(folder) - 1
    is_left = newest >= 0 and (attempt_folder(folder, newest) / JOBS_FILE).is_file()
    return newest if is_left else None


def _read_jobs(file: Path) -> dict[str, dict[str, Any]]:
    """Return what is known of an attempt's jobs by their seeds; nothing of a new attempt's."""
    return dict(json.loads(file.read_text())) if file.is_file() else {}


def _reports_of(folder: Path, attempt: int) -> int:
    """Return how many evaluations of an attempt were reported."""
    rows = read_reports(folder / METRICS_FILE)
    return sum(row.get(ATTEMPT) == attempt and ENDED not in row for row in rows)
