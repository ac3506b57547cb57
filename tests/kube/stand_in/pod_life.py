"""One pod from its creation to its end: the scheduler's and the kubelet's work on it."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import urllib3

from tests.kube.api_client import ApiClient, ApiError
from tests.kube.stand_in import pod_status
from tests.kube.stand_in.containers import (
    Container,
    ProcessContainer,
    Simulated,
    SimulatedContainer,
)
from tests.kube.stand_in.events import now, record
from tests.kube.stand_in.misbehaviour import Misbehaviour, fault
from tests.kube.stand_in.node import StandInNode
from tests.kube.stand_in.pod_log import PodLog
from tests.kube.stand_in.volumes import NotReadyError, PodPlace
from tests.lifeline import Lifeline

Object = dict[str, Any]
_LOOK_AGAIN = 0.1
_PULL_BACK_OFF = 0.5


@dataclass(frozen=True)
class Fate:
    """How a pod comes to its end by force."""

    container_reason: str | None = None
    pod_status: dict[str, str] | None = None
    """What is written over the pod's status: a phase, a reason, a message."""


@dataclass(frozen=True)
class Surroundings:
    """What all pods of a stand-in share."""

    client: ApiClient
    folder: Path
    lifeline: Lifeline
    misbehaviour: Misbehaviour
    choose_node: Callable[[], StandInNode | None]
    simulate: Callable[[Object], Simulated | None]


class _OverError(Exception):
    """The pod is gone, or is to go, before it ran to its end."""


class PodLife:
    """A thread for one pod, woken by what happens to it."""

    def __init__(self, pod: Object, around: Surroundings) -> None:
        self.pod = pod
        self.node: StandInNode | None = None
        self.logs: dict[str, PodLog] = {}
        self._around = around
        self._changed = threading.Condition()
        self._containers: list[Container] = []
        self._fate: Fate | None = None
        self._grace: float | None = None
        self._gone = False
        self._abandoned = False
        self._thread = threading.Thread(target=self._live, daemon=True)
        self._thread.start()

    @property
    def job(self) -> str:
        return str(self.pod["metadata"].get("labels", {}).get("diengine/job", ""))

    @property
    def started(self) -> bool:
        return bool(self._containers)

    @property
    def runs(self) -> bool:
        return self.started and not self._all_ended()

    def suffer(self, fate: Fate) -> None:
        """End the pod's containers by force."""
        with self._changed:
            self._fate = fate
            self._changed.notify_all()

    def end_gently(self, seconds: float) -> None:
        """Begin the grace period of a deletion."""
        with self._changed:
            if self._grace is None:
                self._grace = seconds
                self._changed.notify_all()

    def gone(self) -> None:
        """Take note that the API has the pod no more."""
        with self._changed:
            self._gone = True
            self._changed.notify_all()

    def abandon(self) -> None:
        """End all of it, and tell the API nothing: the node is lost, or the stand-in ends."""
        with self._changed:
            self._abandoned = True
            self._changed.notify_all()

    def join(self) -> None:
        self._thread.join(20)

    def _live(self) -> None:
        try:
            self._schedule()
            self._admit()
            self._pull()
            self._start()
            self._see_through()
        except _OverError:
            pass
        finally:
            self._kill()
        if self._grace is not None and not self._gone:
            self._confirm_deletion()

    def _schedule(self) -> None:
        self._pause(self._around.misbehaviour.slowness)
        told = ""
        while True:
            why = fault(self._around.misbehaviour.unschedulable, self.job)
            node = None if why else self._around.choose_node()
            if node is not None:
                break
            why = why or "0/0 nodes are available."
            if why != told:
                self._report(pod_status.unschedulable(why))
                self._event("FailedScheduling", why, "Warning", "default-scheduler")
                told = why
            self._pause(_LOOK_AGAIN)
        self.node = node
        binding = {"metadata": {"name": self._name}, "target": {"kind": "Node", "name": node.name}}
        self._insist(lambda: self._around.client.create(f"{self._path}/binding", binding))
        if self._real:
            self._event("Scheduled", f"assigned to {node.name}", component="default-scheduler")

    def _admit(self) -> None:
        reason = fault(self._around.misbehaviour.rejected, self.job)
        if reason is not None:
            message = f"Pod was rejected: {reason}"
            self._report({"phase": "Failed", "reason": reason, "message": message})
            self._event(reason, message, "Warning")
            self._wait_for_deletion()

    def _pull(self) -> None:
        if self._real or self._around.misbehaviour.slowness:
            self._report(pod_status.waiting(self.pod, "ContainerCreating"))
        self._pause(self._around.misbehaviour.slowness)
        image = self.pod["spec"]["containers"][0].get("image", "")
        tries = 0
        while why := fault(self._around.misbehaviour.unpullable, self.job):
            message = f'Failed to pull image "{image}": {why}'
            self._report(pod_status.waiting(self.pod, "ErrImagePull", why))
            if tries == 0:
                self._event("Failed", message, "Warning")
            self._pause(_PULL_BACK_OFF)
            back_off = f'Back-off pulling image "{image}"'
            self._report(pod_status.waiting(self.pod, "ImagePullBackOff", back_off))
            if tries == 0:
                self._event("BackOff", back_off)
            tries += 1
            self._pause(_PULL_BACK_OFF)

    def _start(self) -> None:
        self._pause(self._around.misbehaviour.slowness)
        script = self._around.simulate(self.pod)
        prepared = None if script is not None else self._prepared()
        self._started_at = now()
        for number, spec in enumerate(self.pod["spec"]["containers"]):
            log = PodLog()
            container: Container
            if prepared is None:
                assert script is not None
                # A pod's script is its first container's; others would have nothing to say.
                lines = script if number == 0 else Simulated(exit_code=script.exit_code)
                container = SimulatedContainer(lines, log, self._wake)
            else:
                container = ProcessContainer(
                    prepared[number], log, self._around.lifeline, self._wake
                )
            self._containers.append(container)
            self.logs[spec["name"]] = log
        self._report(pod_status.running(self.pod, self._started_at))
        if self._real:
            self._event("Started", "Started the pod's containers")

    def _prepared(self) -> list[dict[str, Any]]:
        """Prepare what the containers need, for as long as something is missing."""
        told = ""
        place = PodPlace(
            self.pod,
            self._around.folder / "pods" / self.pod["metadata"]["uid"],
            self._around.folder / "host",
            self._around.client,
        )
        while True:
            try:
                return [self._asked(place, spec) for spec in self.pod["spec"]["containers"]]
            except (NotReadyError, urllib3.exceptions.HTTPError) as error:
                if isinstance(error, NotReadyError) and str(error) != told:
                    told = str(error)
                    self._event("FailedMount", f"MountVolume.SetUp failed: {error}", "Warning")
                self._pause(_LOOK_AGAIN)

    def _asked(self, place: PodPlace, spec: Object) -> dict[str, Any]:
        values = place.environment(spec)
        root = place.folder / f"root-{spec['name']}"
        root.mkdir(parents=True, exist_ok=True)
        path = f"{Path(sys.executable).parent}:{os.environ.get('PATH', os.defpath)}"
        return {
            "root": str(root),
            "mounts": place.mounts(spec),
            "environment": {"PATH": path, "HOME": "/root", "HOSTNAME": self._name, **values},
            "command": place.command(spec, values) or ["/no-entry-point"],
            "folder": spec.get("workingDir", "/"),
            "host_name": self._name,
        }

    def _see_through(self) -> None:
        """Wait for the containers' end, by themselves or by force, and report it."""
        deadline = self.pod["spec"].get("activeDeadlineSeconds")
        if not self._wait_for_end(deadline):
            with self._changed:
                if self._gone or self._abandoned:
                    raise _OverError
                grace, fate = self._grace, self._fate
            if fate is None and grace is None:
                message = "Pod was active on the node longer than the specified deadline"
                status = {"phase": "Failed", "reason": "DeadlineExceeded", "message": message}
                fate = Fate(pod_status=status)
            if fate is None and grace is not None:
                self._stop_gently(grace)
            else:
                self._kill()
        self._report_end()
        if self._grace is None:
            self._wait_for_deletion()

    def _wait_for_end(self, seconds: float | None) -> bool:
        """Return whether the containers ended by themselves."""

        def over() -> bool:
            forced = self._gone or self._abandoned or self._fate or self._grace is not None
            return bool(forced) or self._all_ended()

        with self._changed:
            self._changed.wait_for(over, seconds)
            return self._all_ended()

    def _stop_gently(self, grace: float) -> None:
        for container in self._containers:
            container.terminate()
        with self._changed:
            self._changed.wait_for(lambda: self._all_ended() or self._gone, grace)
        self._kill()

    def _kill(self) -> None:
        for container in self._containers:
            if container.exit_code is None:
                container.kill()
        with self._changed:
            self._changed.wait_for(self._all_ended, 10)

    def _all_ended(self) -> bool:
        return all(container.exit_code is not None for container in self._containers)

    def _report_end(self) -> None:
        fate = self._fate or Fate()
        codes = [container.exit_code or 0 for container in self._containers]
        reasons = [fate.container_reason, *[None] * (len(codes) - 1)]
        status = pod_status.ended(self.pod, self._started_at, codes, reasons)
        self._report(status | (fate.pod_status or {}))
        if fate.pod_status and "reason" in fate.pod_status:
            text = fate.pod_status.get("message", "")
            self._event(fate.pod_status["reason"], text, "Warning")

    def _wait_for_deletion(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._gone or self._abandoned or self._grace is not None)
        raise _OverError

    def _confirm_deletion(self) -> None:
        options = {"gracePeriodSeconds": 0, "preconditions": {"uid": self.pod["metadata"]["uid"]}}
        self._insist(lambda: self._around.client.delete(self._path, **options))

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _pause(self, seconds: float) -> None:
        """Let time pass, unless the pod's time is over."""

        def over() -> bool:
            return self._gone or self._abandoned or self._grace is not None

        with self._changed:
            self._changed.wait_for(over, seconds)
            if over():
                raise _OverError

    @property
    def _real(self) -> bool:
        return self._around.simulate(self.pod) is None

    @property
    def _name(self) -> str:
        return str(self.pod["metadata"]["name"])

    @property
    def _path(self) -> str:
        return f"api/v1/namespaces/{self.pod['metadata']['namespace']}/pods/{self._name}"

    def _report(self, status: Object) -> None:
        if self._abandoned:
            raise _OverError
        # With its uid, a pod that took this one's name stays as it is.
        change = {"metadata": {"uid": self.pod["metadata"]["uid"]}, "status": status}
        self._insist(lambda: self._around.client.patch(f"{self._path}/status", change))

    def _event(
        self, reason: str, message: str, kind: str = "Normal", component: str = "kubelet"
    ) -> None:
        self._insist(
            lambda: record(self._around.client, self.pod, component, reason, message, kind)
        )

    def _insist(self, request: Callable[[], Any]) -> None:
        """Repeat a request until the API server answers; what it refuses is not wanted any more."""
        while not self._abandoned:
            try:
                request()
            except ApiError as error:
                if error.code < 500 and error.code != 429:
                    return
            except (urllib3.exceptions.HTTPError, OSError):
                pass
            else:
                return
            time.sleep(_LOOK_AGAIN)
