"""A stand-in for DI-orchestrator's operator: watches DIJobs, their pods and their Services."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any

import urllib3

from tests.kube.api_client import DIJOBS, ApiClient, ApiError
from tests.kube.stand_in import job_objects as objects
from tests.kube.stand_in.collection import Collection
from tests.kube.stand_in.events import now, record
from tests.kube.stand_in.job_objects import Object

_TERMINAL = ("Succeeded", "Failed")
_ZERO = {"gracePeriodSeconds": 0}

OnPhase = Callable[[Object, str], None]
"""Called with a job and its next phase, just before the API server is told."""


class StandInOperator:
    """Moves DIJobs of one namespace through their phases, as v1.1.3 does, oddities included.

    All it knows is in the API server: one that is stopped is replaced by a new one.
    """

    def __init__(
        self,
        client: ApiClient,
        namespace: str,
        remakes_last_pod: Callable[[], bool],
        on_phase: OnPhase,
    ) -> None:
        self._client = client
        self._remakes_last_pod = remakes_last_pod
        self._on_phase = on_phase
        self._core = f"api/v1/namespaces/{namespace}"
        self._dijobs = f"{DIJOBS}/namespaces/{namespace}/dijobs"
        self._queue: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._waiting: set[str] = set()
        self._stopped = False
        owned = {"labelSelector": f"diengine/operator={objects.OPERATOR}"}
        self._jobs = Collection(client, self._dijobs, self._job_changed)
        self._pods = Collection(client, f"{self._core}/pods", self._owned_changed, **owned)
        self._services = Collection(client, f"{self._core}/services", self._owned_changed, **owned)
        self._worker = threading.Thread(target=self._work, daemon=True)
        self._worker.start()

    def stop(self) -> None:
        """End at once, in the middle of whatever it is doing."""
        self._stopped = True
        self._queue.put(None)
        for collection in (self._jobs, self._pods, self._services):
            collection.stop()
        self._worker.join(10)

    def _job_changed(self, kind: str, job: Object) -> None:
        self._look_at(job["metadata"]["name"])

    def _owned_changed(self, kind: str, owned: Object) -> None:
        self._look_at(owned["metadata"]["labels"].get("diengine/job", ""))

    def _look_at(self, name: str) -> None:
        if name not in self._waiting:
            self._waiting.add(name)
            self._queue.put(name)

    def _work(self) -> None:
        while (name := self._queue.get()) is not None and not self._stopped:
            self._waiting.discard(name)
            job = self._jobs.get(name)
            if job is None:
                continue
            try:
                self._reconcile(job)
            except (ApiError, urllib3.exceptions.HTTPError):
                # Also what is not found: an API server that has just started may not know DIJobs.
                if not self._stopped:
                    threading.Timer(0.2, self._look_at, (name,)).start()

    def _reconcile(self, job: Object) -> None:
        if not job.get("status", {}).get("phase"):
            self._move(job, "Pending", "the job was created")
            return
        if job["status"]["phase"] in _TERMINAL:
            self._clean(job)
            return
        if any(not task.get("name") for task in job["spec"]["tasks"]):
            job = self._name_tasks(job)
        if reason := objects.violation(job):
            self._move(job, "Failed", reason)
            return
        if job["spec"]["preemptible"]:
            # The real one panics on the empty allocation: nothing ever happens.
            return
        self._count(job, self._pods_of(job))
        self._step(job, self._pods_of(job))
        if not self._owned_by(job, self._services):
            self._create(job, "services", objects.build_service(job))

    def _name_tasks(self, job: Object) -> Object:
        """Write the names that typed tasks go without into the job."""
        tasks = [
            {**task, "name": task["type"]}
            if not task.get("name") and task.get("type", "none") != "none"
            else task
            for task in job["spec"]["tasks"]
        ]
        if tasks == job["spec"]["tasks"]:
            return job
        return self._patch(job, {"spec": {"tasks": tasks}})

    def _step(self, job: Object, every: list[Object]) -> None:
        pods = [pod for pod in every if not objects.terminating(pod)]
        wanted = objects.replicas(job)
        match job["status"]["phase"]:
            case "Pending" if not every:
                self._create_all(job)
            case "Pending" if len(pods) == wanted:
                self._move(job, "Starting", "all pods are created")
            case "Pending" if len(pods) != len(every):
                self._delete(every)
            case "Starting" | "Running" if self._ended(job, pods):
                pass
            case "Starting" if len(pods) != wanted and objects.scheduled(pods) != wanted:
                self._move(job, "Rescheduling", "the number of pods changed")
            case "Starting" if objects.ready(pods) == wanted:
                self._move(job, "Running", "all pods are ready")
            case "Running" if len(pods) != wanted:
                self._move(job, "Rescheduling", f"there are {len(pods)} of {wanted} pods")
            case "Restarting" | "Rescheduling" as phase:
                self._mend(job, every, pods, phase)

    def _ended(self, job: Object, pods: list[Object]) -> bool:
        if pods and all(pod["status"]["phase"] == "Succeeded" for pod in pods):
            self._move(job, "Succeeded", "all pods succeeded")
            return True
        if failed := sum(map(objects.counts_as_failed, pods)):
            self._fail(job, f"{failed} pods failed")
            return True
        return False

    def _fail(self, job: Object, why: str) -> None:
        if job["status"].get("restarts", 0) < job["spec"]["backoffLimit"]:
            self._move(job, "Restarting", why)
        else:
            self._move(job, "Failed", f"{why}, and the backoff limit is reached")

    def _mend(self, job: Object, every: list[Object], pods: list[Object], phase: str) -> None:
        failed = [pod for pod in pods if objects.counts_as_failed(pod)]
        if len(pods) < objects.replicas(job):
            self._delete([pod for pod in every if objects.terminating(pod)])
            self._create_missing(job, pods)
        elif phase == "Restarting" and failed:
            self._delete(failed)
        else:
            self._move(job, "Starting", "as many pods are there as are wanted")

    def _create_all(self, job: Object) -> None:
        made = [
            objects.build_pod(job, task, index, rank)
            for rank, (task, index) in enumerate(objects.places(job))
        ]
        for pod in made:
            try:
                self._create(job, "pods", pod)
            except ApiError as error:
                if error.code >= 500:  # an API server that has just started
                    raise
                self._fail(job, f"pod {pod['metadata']['name']} could not be created")
                self._delete(made)
                return

    def _create_missing(self, job: Object, pods: list[Object]) -> None:
        """Make what is missing, under ranks that nobody had."""
        if not pods and not self._remakes_last_pod():
            return
        there = {pod["metadata"]["name"] for pod in pods}
        ranks = [int(pod["metadata"]["annotations"]["diengine/rank"]) for pod in pods]
        rank = max(ranks, default=objects.replicas(job) - 1)
        for task, index in objects.places(job):
            if objects.pod_name(job, task, index) not in there:
                rank += 1
                self._create(job, "pods", objects.build_pod(job, task, index, rank))

    def _clean(self, job: Object) -> None:
        for service in self._owned_by(job, self._services):
            self._ignore_missing(f"{self._core}/services/{service['metadata']['name']}")
        self._delete([pod for pod in self._pods_of(job) if objects.cleaned_at_the_end(job, pod)])
        status = job["status"]
        if status.get("taskStatus") or status.get("readyReplicas"):
            late = {"completionTimestamp": now(), "taskStatus": None, "readyReplicas": 0}
            self._patch(job, {"status": late}, "/status")

    def _count(self, job: Object, pods: list[Object]) -> None:
        counted: dict[str, Any] = {
            "replicas": objects.replicas(job),
            "readyReplicas": objects.ready(pods),
            "taskStatus": objects.task_status(pods),
        }
        known = job["status"]
        if any(known.get(key, {} if key == "taskStatus" else 0) != counted[key] for key in counted):
            # A merge keeps keys that it does not name, so phases that are over are unnamed.
            for task, phases in known.get("taskStatus", {}).items():
                left = counted["taskStatus"].setdefault(task, None)
                if left is not None:
                    left |= {phase: None for phase in phases if phase not in left}
            self._patch(job, {"status": counted}, "/status")

    def _move(self, job: Object, phase: str, message: str) -> None:
        """Write a phase, then count it, which are two changes for whoever watches."""
        status = {"phase": phase, "conditions": objects.conditions(job, phase, message)}
        known = job.get("status", {})
        self._on_phase(job, phase)
        self._patch(job, {"status": status}, "/status")
        kind = "Warning" if phase in ("Failed", "Restarting") else "Normal"
        record(self._client, job, objects.OPERATOR, f"Job{phase}", message, kind)
        counter = {"Restarting": "restarts", "Rescheduling": "reschedules"}.get(phase)
        if counter:
            self._patch(job, {"status": {counter: known.get(counter, 0) + 1}}, "/status")

    def _create(self, job: Object, kind: str, body: Object) -> None:
        try:
            self._client.create(f"{self._core}/{kind}", body)
        except ApiError as error:
            if error.code == 409:
                return
            text = f"{body['metadata']['name']} could not be created: {error}"
            record(self._client, job, objects.OPERATOR, "FailedCreate", text, "Warning")
            raise
        text = f"{body['metadata']['name']} was created"
        record(self._client, job, objects.OPERATOR, "SuccessfulCreate", text)

    def _delete(self, pods: list[Object]) -> None:
        for pod in pods:
            self._ignore_missing(f"{self._core}/pods/{pod['metadata']['name']}")

    def _ignore_missing(self, path: str) -> None:
        try:
            self._client.delete(path, **_ZERO)
        except ApiError as error:
            if error.code != 404:
                raise

    def _patch(self, job: Object, change: Object, part: str = "") -> Object:
        # The job's uid keeps the change from another job that took its name.
        change = {"metadata": {"uid": job["metadata"]["uid"]}, **change}
        changed = self._client.patch(f"{self._dijobs}/{job['metadata']['name']}{part}", change)
        self._jobs.remember(changed)
        return changed

    def _pods_of(self, job: Object) -> list[Object]:
        return self._owned_by(job, self._pods)

    def _owned_by(self, job: Object, collection: Collection) -> list[Object]:
        name = job["metadata"]["name"]
        found = collection.all()
        return [item for item in found if item["metadata"]["labels"]["diengine/job"] == name]
